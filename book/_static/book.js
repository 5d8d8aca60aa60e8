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

// A page read from a file may not fetch others for their first lines.
if (location.protocol === "file:")
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
