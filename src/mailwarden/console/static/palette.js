// The command palette (Ctrl+K): a dialog with a combobox that leads to pages, tenants and searches (ARIA 1.2).
// The server lists only pages that the user may open. Recent searches stay in this tab.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const PAUSE = 120; // milliseconds after the last key
  const MAX_RECENT = 5;
  const SEARCH = "/console/messages";
  const opener = () => document.querySelector("[data-palette]");
  const key = () => "mailwarden-recent-" + opener().dataset.user;
  let dialog, input, list, status, timer, running, active = -1;

  const recent = () => {
    try {
      const kept = JSON.parse(sessionStorage.getItem(key()) || "[]");
      return kept.filter((each) => typeof each === "string");
    } catch {
      return [];
    }
  };

  const remember = () => {
    const query = new URLSearchParams(location.search).get("q");
    if (location.pathname !== SEARCH || !query || !opener()) return;
    try {
      const kept = [query, ...recent().filter((each) => each !== query)].slice(0, MAX_RECENT);
      sessionStorage.setItem(key(), JSON.stringify(kept));
    } catch {
      // A browser that keeps nothing has no recent searches.
    }
  };

  const recentMatches = (text) => recent()
    .filter((each) => each.toLowerCase().includes(text.toLowerCase()))
    .map((each) => ({ title: each, note: texts.recentSearch, address: SEARCH + "?" + new URLSearchParams({ q: each }) }));

  const mark = (place) => {
    active = place;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    const option = list.children[active];
    if (!option) return input.removeAttribute("aria-activedescendant");
    option.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", option.id);
  };

  const show = (found) => {
    const seen = new Set();
    const shown = found.filter(({ address }) => !seen.has(address) && seen.add(address));
    list.replaceChildren(...shown.map(({ title, note, address }, place) => {
      const option = document.createElement("li");
      const small = document.createElement("span");
      option.id = "mw-palette-" + place;
      option.dataset.address = address;
      option.setAttribute("role", "option");
      small.textContent = note;
      option.append(title, " ", small);
      return option;
    }));
    list.hidden = !shown.length;
    input.setAttribute("aria-expanded", String(!!shown.length));
    status.textContent = shown.length + " " + (shown.length === 1 ? texts.entry : texts.entries);
    mark(shown.length ? 0 : -1);
  };

  const ask = async () => {
    const text = input.value.trim();
    running?.abort();
    running = new AbortController();
    try {
      const address = opener().dataset.palette + "?" + new URLSearchParams({ q: text });
      const answer = await fetch(address, { signal: running.signal, credentials: "same-origin" });
      if (!answer.ok || answer.redirected) return location.reload(); // the session has ended
      const { found } = await answer.json();
      show(text ? [...found, ...recentMatches(text)] : [...recentMatches(""), ...found]);
    } catch (error) {
      if (error.name !== "AbortError") status.textContent = texts.noAnswer;
    }
  };

  const go = (option) => {
    if (option) location.assign(option.dataset.address);
  };

  const build = () => {
    dialog = document.createElement("dialog");
    input = document.createElement("input");
    list = document.createElement("ul");
    status = document.createElement("p");
    dialog.className = "mw-palette";
    dialog.setAttribute("aria-label", texts.palette);
    input.className = "form-control";
    input.type = "text";
    input.autocomplete = "off";
    input.spellcheck = false;
    input.maxLength = 200;
    input.placeholder = texts.paletteHint;
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-label": texts.paletteField, "aria-autocomplete": "list", "aria-expanded": "false",
      "aria-controls": "mw-palette-list",
    })) input.setAttribute(name, value);
    list.id = "mw-palette-list";
    list.hidden = true;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", texts.paletteList);
    status.className = "mw-palette-status";
    status.setAttribute("role", "status");
    dialog.append(input, list, status);
    document.body.append(dialog);
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, PAUSE);
    });
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      const count = list.children.length;
      if (event.key === "ArrowDown" && count) mark((active + 1) % count);
      else if (event.key === "ArrowUp" && count) mark((active - 1 + count) % count);
      else if (event.key === "Enter") go(list.children[active]);
      else return;
      event.preventDefault();
    });
    list.addEventListener("mousedown", (event) => event.preventDefault());
    list.addEventListener("click", (event) => go(event.target.closest("li")));
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.addEventListener("close", () => running?.abort());
  };

  const open = () => {
    if (!opener() || dialog?.open) return dialog?.close();
    if (!dialog) build();
    input.value = "";
    show([]);
    status.textContent = "";
    dialog.showModal();
    ask();
  };

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
    if (!opener()) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette]")) open();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.getAttribute("action") === "/console/logout") sessionStorage.removeItem(key());
  });
  document.addEventListener("DOMContentLoaded", () => {
    if (opener()) opener().hidden = false;
    remember();
  });
})();
