// The search: the places of the book that have the words, the best first. It
// asks no server, so it works from a file, too. searchindex.js has the BOOK:
// {page: [[anchor, heading, names, text, ...code], ...]}, a page's first place
// being the page itself.
(() => {
  // What people type around the words that they mean.
  const COMMON = new Set(`a about an and any are as at be but by can cannot
    could do does doesn't for from get happens has have how i if in into is it
    its me my of on or should so than that the their then there this to use
    using was what when where which who why will with without you
    your`.split(/\s+/));
  const SHOWN = 50, EXCERPT = 220;

  const plain = text => text.toLowerCase()
    .replace(/[\u2018\u2019]/g, "'").replace(/[\u201c\u201d]/g, '"')
    .replace(/\s+/g, " ").trim();
  const quoted = text => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  const places = Object.entries(BOOK).flatMap(([page, found]) => found.map(
    ([anchor, heading, names, text, ...code], i) => ({
      page, heading, text, anchor: i ? `#${anchor}` : "", title: found[0][1],
      api: i && /^reference\/(?:cpp|emulator|python)$/.test(page),
      minor: i && /^reference\/(?:cpp|emulator|python|glossary)$/.test(page)
        || page.startsWith("about/"),
      fields: {
        names: plain(names), heading: plain(heading),
        title: i ? plain(found[0][1]) : "", text: plain(text),
        code: plain(code.join(" ")),
      },
    })));
  // What a word is worth by where it stands.
  const WORTH = {names: 6, heading: 10, title: 3, text: 3, code: 1};

  // The words of a query, each with what finds it: as it is or in the plural,
  // at the beginning of a word, without its own ending, and inside of one.
  const wordsOf = query => {
    const all = plain(query).split(" ")
      .map(word => word.replace(/^[^\w]+|[^\w+]+$/g, "")).filter(Boolean);
    const meant = all.filter(word => !COMMON.has(word));
    return [...new Set(meant.length ? meant : all)].map(word => {
      const one = word.replace(/(?<=[a-z]{3})s$/, "");
      const stem = word.replace(
        /(?<=^[a-z]{5,})(?:ions?|ors?)$|(?<=^[a-z]{4,})(?:ing|ed|es|s|e)$/, "");
      return {
        stem, whole: new RegExp(`(?<!\\w)${quoted(one)}s?(?!\\w)`, "g"),
        begin: new RegExp(`(?<!\\w)${quoted(stem)}`, "g"),
      };
    });
  };

  // From 0, not there, to 1, there as it is and often.
  const level = ({stem, whole, begin}, text) => {
    if (!text.includes(stem)) return 0;
    const often = found => 1 - .5 ** found.length;
    let found = text.match(whole);
    if (found) return .5 + often(found) / 2;
    found = text.match(begin);
    return found ? .4 + often(found) / 5 : stem.length > 2 ? .2 : 0;
  };

  // How much of a text the words are.
  const share = (words, text) => {
    const all = text.match(/[\w+]+/g)?.filter(word => !COMMON.has(word)) ?? [];
    const said = all.filter(part => words.some(
      ({stem}) => part.startsWith(stem) || stem.split(/\W/).includes(part)));
    return all.length ? said.length / all.length : 0;
  };

  const find = query => {
    const words = wordsOf(query), phrase = plain(query);
    if (!words.length) return [];
    const hits = places.map(place => ({place, score: 0, has: 0}));
    for (const word of words) {
      const levels = places.map(({fields}) => Object.keys(WORTH).map(
        field => level(word, fields[field])));
      const having = levels.filter(each => each.some(Boolean)).length;
      const rare = Math.log(1 + places.length / (1 + having));
      levels.forEach((each, i) => {
        if (!each.some(Boolean)) return;
        hits[i].has += rare;
        Object.values(WORTH).forEach((worth, k) =>
          hits[i].score += worth * each[k] * rare);
      });
    }
    for (const hit of hits) {
      const {api, minor, anchor, fields} = hit.place;
      if (!hit.has) continue;
      // The name in a declaration, or the whole of a heading.
      const own = api && fields.heading.match(/(\w+)(?: *\(|$)/)?.[1];
      const named = words.filter(word => level(word, fields.heading)).length;
      hit.score += 40 *
        (share(words, own || fields.heading) * named / words.length) ** 2;
      if (!anchor) hit.score *= 1.2;
      if (fields.names.split("|").includes(phrase)) hit.score += 200;
      if (phrase.includes(" "))
        for (const [field, more] of [["heading", 40], ["text", 15]])
          if (fields[field].includes(phrase)) hit.score += more;
      if (fields.heading === phrase) hit.score += 60;
      if (minor) hit.score *= .6;
    }
    // Who types three words means all of them, if any place has all. Of a whole
    // sentence a place may lack some, and a long one has some by chance.
    const most = Math.max(...hits.map(hit => hit.has));
    const sentence = words.length > 3;
    for (const hit of sentence ? hits : [])
      hit.score *= (hit.has / most) ** 3 / (1 + hit.place.text.length / 6000);
    const least = sentence ? .55 * most : most - 1e-6;
    return hits.filter(hit => hit.has && hit.has >= least)
      .sort((a, b) => b.score - a.score).map(hit => hit.place);
  };

  const element = (name, words = "", kind = "") => {
    const made = document.createElement(name);
    made.textContent = words;
    if (kind) made.className = kind;
    return made;
  };

  // The part of a text with the phrase, or else with a word, and these marked.
  const excerpt = (text, query) => {
    const words = wordsOf(query).map(({stem}) => quoted(stem));
    const marks = new RegExp(
      `(?<!\\w)(?:${[quoted(query.trim()), ...words].join("|")})\\w*`, "gi");
    const whole = text.toLowerCase().indexOf(query.trim().toLowerCase());
    const found = Math.max(0, whole < 0 ? text.search(marks) : whole);
    let begin = text.lastIndexOf(" ", Math.max(0, found - 80)) + 1;
    if (found < 80) begin = 0;
    const cut = text.length > begin + EXCERPT;
    let part = text.slice(begin, begin + EXCERPT);
    if (cut) part = part.replace(/\s\S*$/, "");
    const made = element("p", begin ? "\u2026 " : "", "context");
    let last = 0;
    for (const {0: word, index} of part.matchAll(marks)) {
      made.append(part.slice(last, index), element("mark", word));
      last = index + word.length;
    }
    made.append(part.slice(last), cut ? " \u2026" : "");
    return made;
  };

  const show = (out, query) => {
    const found = query.trim() ? find(query) : [];
    const list = element("ul", "", "search");
    for (const {page, anchor, heading, title, text} of found.slice(0, SHOWN)) {
      const link = element("a", heading), item = element("li");
      link.href = `${page}.html${anchor}`;
      item.append(link);
      if (anchor) item.append(element("span", ` in ${title}`));
      item.append(excerpt(text, query));
      list.append(item);
    }
    // Sphinx marks these words on the page to which a link leads.
    list.addEventListener("click", event => {
      if (!event.target.closest("a")) return;
      const stems = wordsOf(query).map(({stem}) => stem);
      localStorage.setItem("sphinx_highlight_terms", stems.join(" "));
    });
    const count = `${found.length} place${found.length === 1 ? "" : "s"}` +
      (found.length > SHOWN ? `, of which these ${SHOWN} fit best` : "");
    const none = "Nothing has these words. Try fewer, or others.";
    // One node for all queries: it is what a screen reader listens to.
    document.querySelector(".search-summary").textContent =
      found.length ? count : query.trim() ? none : "";
    out.replaceChildren(list);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const out = document.getElementById("search-results");
    const box = document.getElementById("search-words");
    box.value = new URLSearchParams(location.search).get("q") ?? "";
    box.addEventListener("input", () => show(out, box.value));
    if (box.value) show(out, box.value);
    else box.focus();
  });
})();
