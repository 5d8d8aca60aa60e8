// Boxes that scroll sideways can be reached, and so scrolled, by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper, .drawing"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
});

// A page read from a file may not fetch others for their first lines.
if (location.protocol === "file:")
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
