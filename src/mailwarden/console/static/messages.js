// The list of messages: keys, selection, and the message beside the list in wide windows.
// Without this script the list is a form with links to the page of each message.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const PAUSE = 150; // milliseconds before a message is loaded while the user moves through the list
  const TYPING = "input:not([type=checkbox]), textarea, select";
  const MESSAGE = "^/console/(messages|quarantine)/[0-9a-f-]{36}";
  const PAGE = new RegExp(MESSAGE + "(/block|/tune)?$");
  const ACTION = new RegExp(MESSAGE + "/(block|release|delete|rescan|report|tune)$|^/console/training/reports/");
  const KEYS = "mailwarden-keys"; // "off" turns single-key shortcuts off in this browser

  const kept = () => {
    try {
      return localStorage.getItem(KEYS);
    } catch {
      return null;
    }
  };

  const start = (panes) => {
    const wide = window.matchMedia("(min-width: 75rem)");
    const form = () => panes.querySelector("[data-list]");
    const section = panes.querySelector(".mw-pane");
    const pane = document.getElementById("pane");
    const page = section.querySelector("[data-pane-page]");
    let last = panes.dataset.open || "", keys = kept() !== "off", position = 0, timer;

    const linkOf = (line) => line.querySelector(".mw-line-open");
    const lines = () => [...panes.querySelectorAll(".mw-line")].filter((line) => !line.closest("details:not([open])"));
    const isAt = (line, place) => line.dataset.row === place || line.dataset.row.startsWith(place + "~"); // without a tenant
    const lineOf = (place) => place && lines().find((line) => isAt(line, place));
    const isOpen = () => wide.matches && !section.hidden;

    const mark = () => {
      for (const line of panes.querySelectorAll(".mw-line")) {
        if (!section.hidden && panes.dataset.open && isAt(line, panes.dataset.open)) linkOf(line).setAttribute("aria-current", "true");
        else linkOf(line).removeAttribute("aria-current");
      }
    };

    const remember = (place) => {
      const address = new URL(window.location.href);
      if (place) address.searchParams.set("open", place);
      else address.searchParams.delete("open");
      window.history.replaceState(window.history.state, "", address);
    };

    const load = (verb, path, values) => window.htmx.ajax(verb, path, { target: "#pane", swap: "innerHTML", values });

    const open = (line) => {
      clearTimeout(timer);
      last = panes.dataset.open = line.dataset.row;
      position = lines().indexOf(line);
      section.hidden = false;
      page.href = linkOf(line).href;
      pane.replaceChildren(); // no action on the message before, while this one loads or if it cannot
      mark();
      remember(last);
      load("GET", linkOf(line).getAttribute("href"));
      line.scrollIntoView({ block: "nearest" });
    };

    const close = () => {
      section.hidden = true;
      pane.replaceChildren();
      remember("");
      mark();
      const line = lineOf(last);
      if (line) linkOf(line).focus();
    };

    const current = () => document.activeElement.closest?.(".mw-line") || lineOf(last);

    const move = (step) => {
      const all = lines(), here = all.indexOf(current());
      const line = all[here < 0 ? Math.min(position, all.length - 1) : here + step]; // the next one if the last is gone
      if (!line) return;
      position = all.indexOf(line);
      linkOf(line).focus();
      line.scrollIntoView({ block: "nearest" });
      last = line.dataset.row;
      clearTimeout(timer);
      if (isOpen()) timer = setTimeout(open, PAUSE, line);
    };

    const search = () => {
      document.getElementById("q").focus();
      document.getElementById("q").select();
    };

    const count = () => {
      const list = form();
      if (!list) return;
      for (const entry of list.querySelectorAll(".mw-entry-group")) {
        const all = entry.querySelector(":scope > .mw-line input[name=row]");
        if (!all) continue;
        const ticked = [...entry.querySelectorAll(".mw-group input[name=row]")].map((each) => each.checked);
        all.checked = ticked.every(Boolean);
        all.indeterminate = !all.checked && ticked.some(Boolean);
      }
      const chosen = new Set();
      for (const each of list.querySelectorAll("input[name=row]:checked")) each.value.split(".").forEach((place) => chosen.add(place));
      list.classList.toggle("mw-some", chosen.size > 0);
      list.classList.add("mw-scripted");
      const status = list.querySelector("[data-count]");
      if (status) status.textContent = chosen.size ? chosen.size + " " + texts.selected : "";
    };

    // After an action in the pane the rows are read again; selected rows and open groups stay as they are.
    const refresh = async () => {
      const response = await fetch(window.location.href);
      if (!response.ok || response.redirected) return;
      const text = await response.text();
      const list = panes.querySelector(".mw-panes-list"), top = list.scrollTop;
      const ticked = new Set([...list.querySelectorAll("input[name=row]:checked")].map((box) => box.value));
      const unfolded = new Set([...list.querySelectorAll(".mw-group[open]")].map((group) => rowBefore(group)));
      window.htmx.swap(list, text, { swapStyle: "outerHTML", swapDelay: 0, settleDelay: 0 }, { select: ".mw-panes-list" });
      for (const group of panes.querySelectorAll(".mw-group")) group.open = unfolded.has(rowBefore(group));
      for (const box of panes.querySelectorAll("input[name=row]")) box.checked = ticked.has(box.value);
      panes.querySelector(".mw-panes-list").scrollTop = top;
      const counted = document.querySelector(".mw-facet-place");
      if (counted) window.htmx.ajax("GET", counted.getAttribute("hx-get"), { target: counted, swap: "innerHTML" });
      count();
      mark();
    };
    const rowBefore = (group) => group.closest(".mw-entry").querySelector(".mw-line").dataset.row;

    const toggle = (box) => {
      const group = box.closest(".mw-group") ? null : box.closest(".mw-entry-group");
      for (const each of group ? group.querySelectorAll(".mw-group input[name=row]") : []) each.checked = box.checked;
      count();
    };

    document.addEventListener("change", (event) => {
      if (event.target.name === "row") toggle(event.target);
      else if (event.target.dataset.choose === "row") count();
    });

    panes.addEventListener("focusin", (event) => {
      const line = event.target.closest(".mw-line");
      if (line) last = line.dataset.row;
    });

    // A click anywhere in the row opens the message; with a modifier key the browser opens the link as usual.
    panes.addEventListener("click", (event) => {
      const line = event.target.closest(".mw-line");
      if (!line || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      const link = event.target.closest("a");
      if (event.target.closest("label, input, summary") || (!link && String(window.getSelection()))) return;
      if (!wide.matches) {
        if (!link) linkOf(line).click();
        return;
      }
      event.preventDefault();
      linkOf(line).focus();
      open(line);
    });

    // Pages about the message and its actions stay in the pane.
    pane.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      if (link.origin !== window.location.origin || link.hash || !PAGE.test(link.pathname)) return;
      event.preventDefault();
      load("GET", link.pathname + link.search);
    });
    pane.addEventListener("submit", (event) => {
      const sent = event.target, button = event.submitter;
      const from = button?.hasAttribute("formaction") ? button : sent;
      const path = from.getAttribute(from === sent ? "action" : "formaction");
      if (sent.target || !ACTION.test(path)) return;
      event.preventDefault();
      if (sent.enctype !== "multipart/form-data") load(sent.method.toUpperCase(), path, new FormData(sent, button));
      else window.htmx.ajax("POST", path, { source: sent, target: "#pane", values: { [button.name]: button.value } });
    });
    document.addEventListener("htmx:afterSwap", (event) => {
      if (event.target.id === "pane") {
        pane.scrollTop = 0;
        if (event.detail.requestConfig.verb === "post") refresh();
      }
      if (event.target.id !== "rows") return;
      mark();
      if (document.activeElement === document.body && lineOf(last)) linkOf(lineOf(last)).focus({ preventScroll: true });
    });
    section.querySelector("[data-pane-close]").addEventListener("click", close);

    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
      if (event.target.closest?.(TYPING) || (!keys && event.key !== "Escape")) return;
      const fold = document.querySelector(".mw-fold[open]");
      if (event.key === "j") move(1);
      else if (event.key === "k") move(-1);
      else if (event.key === "x") current()?.querySelector("input[name=row]")?.click();
      else if (event.key === "/") search();
      else if (event.key === "Escape" && fold) fold.open = false;
      else if (event.key === "Escape" && isOpen()) close();
      else return;
      event.preventDefault();
    });
    document.addEventListener("click", (event) => {
      for (const fold of document.querySelectorAll(".mw-fold[open]")) if (!fold.contains(event.target)) fold.open = false;
    });

    const choice = document.querySelector("[data-keys-switch]");
    if (choice) choice.checked = keys;
    choice?.addEventListener("change", () => {
      keys = choice.checked;
      try {
        localStorage.setItem(KEYS, keys ? "on" : "off");
      } catch {
        // A browser that keeps nothing uses the choice until the page is left.
      }
    });

    form()?.classList.add("mw-scripted");
    window.addEventListener("pageshow", count);
    if (!panes.dataset.open) return;
    if (!wide.matches) {
      window.location.replace(page.href);
      return;
    }
    mark();
    load("GET", page.getAttribute("href"));
    lineOf(last)?.scrollIntoView({ block: "center" });
  };

  document.addEventListener("DOMContentLoaded", () => {
    const panes = document.querySelector("[data-panes]");
    if (panes) start(panes);
  });
})();
