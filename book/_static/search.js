// How the search orders what it finds: a place that an {index} of a page names,
// a name of the API, a page by its whole title, the pages about the book last.
var Scorer = {
  objNameMatch: 11, objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, title, anchor, description, score, file, kind]) => {
    if (kind === "object" && score > Scorer.objNameMatch) score += 25;
    if (kind === "title" && score > Scorer.title) score += 35;
    const listed = /^reference\/(?!environment)/.test(page); // names, not places
    if (kind === "index" && listed) score = Math.min(score, 12);
    if (page.startsWith("about/")) score -= 10;
    return score;
  },
};
