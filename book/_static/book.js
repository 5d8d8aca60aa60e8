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
