// Content that arrives late leaves alone what the user is about to click or has changed.
//
// A poll is not shown while the user is at the page: while the pointer moves or is on a control, or the focus is in the
// part that would be replaced. The next poll is shown instead. A page with changed input does not reload by itself.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const MOVING = 1000; // milliseconds after a movement in which the pointer may be on its way to a control
  const AWAY = 30000; // milliseconds without a movement or key after which the user has left the page alone
  const CONTROL = ":is(a, button, input, select, textarea, summary, label, .mw-line):hover";
  let moved = -AWAY, typed = -AWAY;

  const isPoll = (request) => Boolean(request?.elt?.getAttribute("hx-trigger")?.startsWith("every"));

  const isAt = (part) => {
    const now = performance.now();
    if (now - moved < MOVING) return true;
    if (now - moved < AWAY && document.querySelector("main")?.querySelector(CONTROL)) return true;
    return now - typed < AWAY && part.contains(document.activeElement);
  };

  const isChanged = (control) => {
    if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
    if (control.type === "file") return control.files.length > 0;
    if (control.type !== "select-one") return "defaultValue" in control && control.value !== control.defaultValue;
    const first = [...control.options].findIndex((option) => option.defaultSelected);
    return control.selectedIndex !== Math.max(first, 0);
  };
  const isEdited = () => [...document.querySelectorAll("main form")].some((form) => [...form.elements].some(isChanged));

  for (const name of ["pointermove", "pointerdown", "scroll"]) {
    document.addEventListener(name, () => (moved = performance.now()), { capture: true, passive: true });
  }
  document.addEventListener("keydown", () => (typed = performance.now()), { capture: true });

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target && isPoll(event.detail.requestConfig) && isAt(event.detail.target)) event.detail.shouldSwap = false;
  });

  // A count that fails says so in its line: an error in its place would move the page.
  const fail = (part) => {
    for (const line of part?.querySelectorAll(".mw-late-line") ?? []) line.textContent = texts.notCounted;
  };
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, target, xhr } = event.detail;
    if (xhr.status < 400 || requestConfig?.elt?.getAttribute("hx-trigger") !== "load") return;
    if (!target?.querySelector(".mw-late-line")) return;
    event.detail.shouldSwap = false;
    fail(target);
  });
  document.addEventListener("htmx:sendError", (event) => fail(event.detail.target));

  // A poll that would leave or reload the page waits for the user, and tells when it would lose input.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const { requestConfig, xhr } = event.detail;
    if (!isPoll(requestConfig) || xhr.status >= 400) return;
    if (!xhr.getResponseHeader("HX-Refresh") && !xhr.getResponseHeader("HX-Redirect")) return;
    const edited = isEdited();
    requestConfig.elt.querySelector(".mw-either")?.classList.toggle("mw-second", edited);
    if (edited || isAt(requestConfig.elt)) event.preventDefault();
  });

  // New results of a list keep the entries ticked that are in them again.
  let ticked = new Set();
  const boxes = (part) => part?.querySelectorAll("input[type=checkbox][name=entry]") ?? []; // no part: sent by a script
  document.addEventListener("htmx:beforeSwap", (event) => {
    ticked = new Set([...boxes(event.detail.target)].filter((box) => box.checked).map((box) => box.value));
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const box of boxes(event.detail.target)) if (ticked.has(box.value)) box.checked = true;
  });
})();
