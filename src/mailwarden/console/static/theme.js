// Light or dark, before anything is painted: as chosen here, else as the system says.
"use strict";
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("mailwarden-theme");
    } catch {
      return null;
    }
  };
  const show = () => {
    document.documentElement.dataset.bsTheme = chosen() || (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", show);
  show();
})();
