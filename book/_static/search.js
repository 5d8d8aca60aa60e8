// Words and the numbers of their pages, as book/_ext/search_index.py packs them:
// a word lacks what it shares with the one before, a number is one character.
const unpack = text => {
  const found = {};
  let word = "";
  for (const line of text.split("\n")) {
    const [rest, pages] = line.split(" ");
    word = word.slice(0, rest.charCodeAt(0) - 48) + rest.slice(1);
    found[word] = Array.from(pages, page => page.charCodeAt(0) - 48);
  }
  return found;
};
const unpackIndex = index => ({...index, terms: unpack(index.terms)});

// How the search orders what it finds: a name of the API first, then the page
// that speaks most of the words (_static/densest.js), the glossary after both.
var Scorer = {
  objNameMatch: 11, objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, title, anchor, description, score, file, kind]) => {
    const query = new URLSearchParams(location.search).get("q").toLowerCase();
    const words = query.match(/[a-z_][\w]{2,}/g) || [];
    const [pages, best] = DENSEST;
    const densest = words.filter(word => pages[best[word]?.[0]] === page).length;
    if (kind === "object" && score > Scorer.objNameMatch) score += 25;
    if (kind === "title" && score > Scorer.title) score += 35; // a page's whole title
    if (kind === "index") score = Math.min(score, 12);
    if (page.startsWith("about/")) score -= 10;
    if (page === "reference/environment" && /^openreg_/.test(query)) score += 50;
    if (kind === "text") score += 30 * densest / Math.max(words.length, 1);
    return score;
  },
};
