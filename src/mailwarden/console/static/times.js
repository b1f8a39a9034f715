// Shows times in the zone of the account, or else of the browser; the title of each has it in UTC.
// Without this script, and in exports, times are in UTC.
"use strict";
(() => {
  const SHAPE = /^(\d{4}-\d\d-\d\d)(?: \d\d:\d\d(:\d\d)?)?(?: UTC)?$/;
  const IN_TEXT = /(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d) UTC/g;
  const FIELDS = {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23",
  };
  let zone, format;

  // A zone that this browser does not know is left out.
  const choose = () => {
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const each of [document.body.dataset.timeZone, own, "UTC"]) {
      if (!each) continue;
      try {
        format = new Intl.DateTimeFormat("en-GB", { ...FIELDS, timeZone: each });
        zone = each;
        return;
      } catch {
        // The next one.
      }
    }
  };

  const written = (moment) => {
    const parts = Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
    return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
  };

  const show = (time) => {
    const text = time.textContent.trim();
    const moment = new Date(time.dateTime);
    if (time.dataset.shown || !SHAPE.test(text) || Number.isNaN(moment.getTime())) return;
    time.dataset.shown = zone;
    time.title = moment.toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const shown = written(moment).slice(0, text.replace(" UTC", "").length);
    const head = time.firstElementChild; // a part that narrow windows hide, such as the year
    const cut = head ? head.textContent.length : 0;
    if (head) head.textContent = shown.slice(0, cut);
    time.replaceChildren(...(head ? [head] : []), shown.slice(cut));
  };

  // A sentence that names times: each becomes an element of its own.
  const split = (node) => {
    const pieces = [];
    let last = 0;
    for (const found of node.data.matchAll(IN_TEXT)) {
      const time = document.createElement("time");
      time.dateTime = `${found[1]}-${found[2]}-${found[3]}T${found[4]}:${found[5]}:00Z`;
      time.textContent = found[0];
      pieces.push(node.data.slice(last, found.index), time);
      last = found.index + found[0].length;
    }
    if (pieces.length) node.replaceWith(...pieces, node.data.slice(last));
  };

  const prepare = (part) => {
    if (zone === "UTC") return;
    for (const each of part.querySelectorAll("[data-times]")) {
      const walker = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
      const nodes = [];
      while (walker.nextNode()) if (!walker.currentNode.parentElement.closest("time")) nodes.push(walker.currentNode);
      nodes.forEach(split);
    }
    part.querySelectorAll("time[datetime]").forEach(show);
    for (const each of part.querySelectorAll("[data-zone]")) each.textContent = zone;
  };

  // The zones that this browser knows, for the form of the account.
  const offer = () => {
    const list = document.getElementById("zones");
    if (!list || !Intl.supportedValuesOf) return;
    list.replaceChildren(...["UTC", ...Intl.supportedValuesOf("timeZone")].map((name) => {
      const option = document.createElement("option");
      option.value = name;
      return option;
    }));
  };

  document.addEventListener("DOMContentLoaded", () => {
    choose();
    prepare(document);
    offer();
  });
  document.addEventListener("htmx:afterSettle", (event) => prepare(event.target.parentElement || event.target));
})();
