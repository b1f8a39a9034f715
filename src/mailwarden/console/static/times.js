// Shows times in the zone of the account, or else of the browser; the title of each has it in UTC.
// Without this script, and in exports, times are in UTC.
"use strict";
(() => {
  // English has the form of ISO 8601; other languages have the formats that the server uses as well (CLDR).
  const FIELDS = {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23",
  };
  const FORMS = {
    second: { length: 19, style: { dateStyle: "medium", timeStyle: "medium" } },
    line: { length: 16, style: { dateStyle: "medium", timeStyle: "short" } }, // of a list; of the last day: how long ago
    minute: { length: 16, style: { dateStyle: "medium", timeStyle: "short" } },
    day: { length: 10, style: { dateStyle: "medium" } },
  };
  const language = document.documentElement.lang;
  let zone, format;

  // A zone that this browser does not know is left out.
  const choose = () => {
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const each of [document.body.dataset.timeZone, own, "UTC"]) {
      if (!each) continue;
      try {
        format = new Intl.DateTimeFormat("en-GB", { ...FIELDS, timeZone: each });
        zone = document.body.dataset.timeZone = each; // the chart of the dashboard has it as well
        return;
      } catch {
        // The next one.
      }
    }
  };

  const written = (moment, { length, style }) => {
    if (language !== "en") return new Intl.DateTimeFormat(language, { ...style, timeZone: zone }).format(moment);
    const parts = Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
    const text = `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
    return text.slice(0, length);
  };

  const show = (time) => {
    const moment = new Date(time.dateTime);
    if (time.dataset.shown || Number.isNaN(moment.getTime())) return;
    time.dataset.shown = zone;
    time.title = moment.toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const minutes = Math.floor((Date.now() - moment) / 60000);
    if (time.dataset.form === "line" && minutes >= 0 && minutes < 1440) {
      const ago = minutes < 60 ? [-minutes, "minute"] : [-Math.floor(minutes / 60), "hour"];
      return time.replaceChildren(new Intl.RelativeTimeFormat(language, { style: "narrow", numeric: "auto" }).format(...ago));
    }
    const text = written(moment, FORMS[time.dataset.form]);
    const year = time.querySelector(".mw-line-year"); // narrow windows hide it
    const place = year ? text.search(/\d{4}/) : -1;
    if (place < 0) return time.replaceChildren(text);
    const end = place + (text[place + 4] === "-" ? 5 : 4);
    year.textContent = text.slice(place, end);
    time.replaceChildren(text.slice(0, place), year, text.slice(end));
  };

  const prepare = (part) => {
    part.querySelectorAll(zone === "UTC" ? "time[data-form=line]" : "time[data-form]").forEach(show);
    if (zone === "UTC") return;
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
