// Small comforts on top of pages that work without them. Everything is found by data- attributes.
"use strict";
(() => {
  const root = document.documentElement;

  const switchTheme = () => {
    const next = root.dataset.bsTheme === "dark" ? "light" : "dark";
    root.dataset.bsTheme = next;
    try {
      localStorage.setItem("mailwarden-theme", next);
    } catch {
      // A browser that keeps nothing shows the choice until the page is left.
    }
  };

  const copy = async (button) => {
    const source = document.getElementById(button.dataset.copy);
    await navigator.clipboard.writeText(source.value || source.textContent);
    const before = button.textContent;
    button.textContent = JSON.parse(root.dataset.texts).copied;
    setTimeout(() => (button.textContent = before), 1500);
  };

  const prepare = (part) => {
    for (const each of part.querySelectorAll("[data-copy], [data-theme-switch], [data-needs-script]")) each.hidden = false;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    if ("themeSwitch" in button.dataset) switchTheme();
  });

  document.addEventListener("change", (event) => {
    const name = event.target.dataset.choose;
    if (!name) return;
    for (const each of event.target.form.elements) if (each.name === name) each.checked = event.target.checked;
  });

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("DOMContentLoaded", () => {
    const menu = document.querySelector("[data-menu]");
    const narrow = window.matchMedia("(max-width: 61.99rem)");
    const fold = () => {
      if (menu) menu.open = !narrow.matches;
    };
    narrow.addEventListener("change", fold);
    fold();
    prepare(document);
  });
  document.addEventListener("htmx:afterSwap", (event) => prepare(event.target));
})();
