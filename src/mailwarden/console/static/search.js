// Completes the search box while the user types: a combobox with a list of suggestions (ARIA 1.2).
// Without this script it is a plain input.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const PAUSE = 150; // milliseconds after the last key

  const complete = (box) => {
    const input = box.querySelector("input");
    const list = document.createElement("ul");
    const status = document.createElement("p");
    let timer, running, start = 0, end = 0, active = -1;

    list.id = input.id + "-completions";
    list.className = "mw-completions";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", texts.suggestions);
    list.hidden = true;
    status.className = "visually-hidden";
    status.setAttribute("role", "status");
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", list.id);
    input.setAttribute("aria-expanded", "false");
    box.append(list, status);

    const close = () => {
      clearTimeout(timer);
      running?.abort();
      list.hidden = true;
      active = -1;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };

    const choose = (option) => {
      const text = option.dataset.text;
      const isOperator = text.endsWith(":");
      const before = input.value.slice(0, start) + text + (isOperator ? "" : " ");
      input.value = before + input.value.slice(end).trimStart();
      input.focus();
      input.setSelectionRange(before.length, before.length);
      close();
      if (isOperator) ask();
    };

    const move = (step) => {
      const count = list.children.length;
      active = (active + step + (active < 0 && step < 0 ? 1 : 0) + count) % count;
      [...list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === active)));
      const option = list.children[active];
      option.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", option.id);
    };

    const show = (answer) => {
      start = answer.start;
      active = -1;
      input.removeAttribute("aria-activedescendant");
      list.replaceChildren(...answer.found.map(({ text, kind }, place) => {
        const option = document.createElement("li");
        const note = document.createElement("span");
        option.id = list.id + "-" + place;
        option.dataset.text = text;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.append(text, " ");
        note.textContent = kind;
        option.append(note);
        return option;
      }));
      list.hidden = !answer.found.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      status.textContent = answer.found.length ? answer.found.length + " " + texts.suggestion : "";
    };

    const ask = async () => {
      end = input.selectionStart;
      running?.abort();
      running = new AbortController();
      try {
        const address = box.dataset.completions + "?" + new URLSearchParams({ q: input.value.slice(0, end) });
        const answer = await fetch(address, { signal: running.signal, credentials: "same-origin" });
        if (answer.ok && document.activeElement === input) show(await answer.json());
      } catch {
        // The next key asks again.
      }
    };

    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, PAUSE);
    });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (list.hidden) {
        if (event.key === "ArrowDown" && input.value) ask();
        return;
      }
      if (event.key === "ArrowDown") move(1);
      else if (event.key === "ArrowUp") move(-1);
      else if (event.key === "Escape") close();
      else if (event.key === "Enter" && active >= 0) choose(list.children[active]);
      else return;
      event.preventDefault();
    });
    // Before the input loses the focus.
    list.addEventListener("mousedown", (event) => {
      const option = event.target.closest("li");
      event.preventDefault();
      if (option) choose(option);
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const box of document.querySelectorAll("[data-completions]")) complete(box);
  });
})();
