"use strict";
// Shows what is behind a bar, under the pointer or beside the row that has the focus.
(() => {
  const more = document.getElementById("more");
  const edge = 8;
  let shown = null;
  // The row that the user does not want to see more of, until the focus or the pointer has been elsewhere.
  let dismissed = null;

  function place(x, y) {
    const box = more.getBoundingClientRect();
    const beside = x + 16 + box.width + edge > innerWidth ? x - 16 - box.width : x + 16;
    const below = y + 16 + box.height + edge > innerHeight ? y - 16 - box.height : y + 16;
    more.style.left = Math.max(edge, Math.min(beside, innerWidth - box.width - edge)) + "px";
    more.style.top = Math.max(edge, below) + "px";
  }

  function show(row, x, y) {
    if (shown !== row) {
      hide();
      shown = row;
      more.replaceChildren(row.querySelector("template").content.cloneNode(true));
      more.hidden = false;
      row.setAttribute("aria-describedby", "more");
    }
    place(x, y);
  }

  function hide() {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    more.hidden = true;
  }

  const rowOf = (event) => (event.target instanceof Element ? event.target.closest(".row") : null);

  document.addEventListener("pointermove", (event) => {
    const row = rowOf(event);
    if (row !== dismissed) dismissed = null;
    if (row && !dismissed) show(row, event.clientX, event.clientY);
    else if (shown && shown !== document.activeElement) hide();
  });
  function besideFocus() {
    const row = document.activeElement?.closest(".row");
    if (!row || row === dismissed) return hide();
    const box = row.getBoundingClientRect();
    show(row, box.left + box.width / 2, box.bottom - 16);
  }

  document.addEventListener("focusin", () => {
    dismissed = null;
    besideFocus();
  });
  document.addEventListener("focusout", hide);
  // Focus that moves to a row out of sight scrolls to it.
  document.addEventListener("scroll", besideFocus, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    dismissed = shown;
    hide();
  });
})();
