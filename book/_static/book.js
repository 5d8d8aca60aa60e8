// Boxes that scroll sideways can be reached, and so scrolled, by keyboard,
// whenever they begin to: in a narrower window, in a tab or answer that opens.
document.addEventListener("DOMContentLoaded", () => {
  const boxes = new ResizeObserver(changed => {
    for (const {target} of changed)
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
  });
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper, .drawing"))
    boxes.observe(box);
});

// What the style cannot see of a table: whether its first column counts, and
// whether its rows are sentences, so that on a phone they stack. Cells then
// have the names of their columns, and roles, which those in blocks would lose.
document.addEventListener("DOMContentLoaded", () => {
  const LONG = 80; // letters of a row
  const ROLES = {TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup",
                 TR: "row", TH: "columnheader", TD: "cell"};
  for (const table of document.querySelectorAll("article table.docutils")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.every(({cells}) => /^\s*\d+\s*$/.test(cells[0].textContent)))
      table.classList.add("numbered");
    const names = [...table.querySelectorAll("thead th")].map(x => x.textContent.trim());
    const letters = table.tBodies[0].textContent.length;
    if (names.length < 3 || letters < LONG * rows.length) continue;
    table.classList.add("stacks");
    for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, th, td")])
      part.setAttribute("role", ROLES[part.tagName]);
    for (const {cells} of rows)
      for (const cell of cells) cell.dataset.column = names[cell.cellIndex];
  }
});

// Furo leaves its landmarks without names, and its captions without a level.
document.addEventListener("DOMContentLoaded", () => {
  const name = (what, says) => {
    for (const part of document.querySelectorAll(what))
      part.setAttribute("aria-label", says);
  };
  name("aside.sidebar-drawer", "The book");
  name("aside.toc-drawer", "This page");
  for (const tools of document.querySelectorAll(".content-icon-container"))
    tools.setAttribute("role", "region");
  name(".content-icon-container", "Tools");
  for (const caption of document.querySelectorAll('.sidebar-tree [role="heading"]'))
    caption.setAttribute("aria-level", "2");
});
