// Draws the decisions over time. Each interval is a link to its messages, and shows its numbers on hover and focus;
// the arrow keys move between them. The table below has the same numbers and links, and works without this script.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const language = document.documentElement.lang;
  const place = document.querySelector("[data-decisions]");
  if (!place || typeof uPlot === "undefined") return;
  const EVERY = 15000;
  const points = document.querySelector("[data-points]");
  const tip = document.querySelector("[data-tip]");
  let drawn = null;
  let current = -1; // the interval that the arrow keys are at

  const colour = (name) => {
    const probe = document.querySelector(".mw-chart-" + name);
    return getComputedStyle(probe).getPropertyValue("--mw-colour").trim();
  };

  // Bars stand on one another: the one at the back is as high as all together.
  const stacked = (answer) => {
    const sums = answer.times.map(() => 0);
    return answer.decisions.map((each) => ({
      name: each.name,
      counts: each.counts,
      tops: each.counts.map((count, at) => (sums[at] += count)),
    }));
  };

  // Times are in the zone that times.js chose. English has the form of ISO 8601, as Swedish does.
  const zone = () => document.body.dataset.timeZone || "UTC";
  const written = (seconds, style, english) =>
    new Intl.DateTimeFormat(language === "en" ? english : language, { ...style, timeZone: zone() }).format(seconds * 1000);

  // A time of day, or the day where one begins.
  const told = (seconds) => {
    const time = written(seconds, { timeStyle: "short" }, "sv-SE");
    return time === "00:00" ? written(seconds, { day: "numeric", month: "short" }, "en-GB") : time;
  };

  const draw = (answer) => {
    const ink = getComputedStyle(place).color;
    const line = getComputedStyle(place).borderTopColor;
    const layers = stacked(answer).reverse();
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const width = place.clientWidth;
    const options = {
      width,
      height: place.clientHeight,
      legend: { show: false },
      cursor: { show: false },
      // Positions are known only when the chart has its size.
      hooks: { ready: [(chart) => link(chart, answer)] },
      scales: {
        x: { range: () => [answer.times[0], answer.times[answer.times.length - 1] + answer.width] },
        y: { range: (_, __, most) => [0, Math.max(4, most * 1.05)] },
      },
      axes: [
        { ...axis, grid: { show: false }, values: (_, moments) => moments.map(told) },
        { ...axis, size: 54, values: (_, counts) => counts.map((count) => count.toLocaleString(language)) },
      ],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone()),
      series: [
        {},
        ...layers.map((layer) => ({
          label: layer.name,
          fill: colour(layer.name),
          width: 0,
          points: { show: false },
          paths: uPlot.paths.bars({ size: [0.85, 60], align: 1 }),
        })),
      ],
    };
    if (drawn) drawn.destroy();
    drawn = new uPlot(options, [answer.times, ...layers.map((layer) => layer.tops)], place);
  };

  const minute = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16);

  // The search that lists the messages of one interval.
  const search = (from, width) =>
    "/console/messages?" + new URLSearchParams({ range: "between", since: minute(from), until: minute(from + width) });

  const sentence = (answer, at) => {
    const counts = answer.decisions.filter((each) => each.counts[at]);
    const total = counts.reduce((sum, each) => sum + each.counts[at], 0);
    const style = { dateStyle: language === "en" ? "short" : "medium", timeStyle: "short" };
    const from = written(answer.times[at], style, "sv-SE");
    const parts = counts.map((each) => each.counts[at].toLocaleString(language) + " " + each.label);
    const messages = total.toLocaleString(language) + (total === 1 ? " " + texts.message : " " + texts.messages);
    return from + " " + zone() + ": " + messages + (parts.length ? " (" + parts.join(", ") + ")" : "");
  };

  const show = (column) => {
    for (const each of points.children) each.tabIndex = each === column ? 0 : -1;
    current = [...points.children].indexOf(column);
    tip.textContent = column.getAttribute("aria-label");
    tip.hidden = false;
    const middle = column.offsetLeft + column.offsetWidth / 2;
    const room = points.parentElement.clientWidth - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, middle - tip.offsetWidth / 2)) + "px";
  };

  const hide = () => {
    if (!points.contains(document.activeElement)) tip.hidden = true;
  };

  // Lays one link over each interval, as high as the drawing.
  const link = (chart, answer) => {
    const focused = points.contains(document.activeElement);
    const box = chart.over.getBoundingClientRect();
    const frame = points.parentElement.getBoundingClientRect();
    const columns = answer.times.map((from, at) => {
      const column = document.createElement("a");
      const left = chart.valToPos(from, "x");
      column.href = search(from, answer.width);
      column.setAttribute("aria-label", sentence(answer, at));
      column.tabIndex = -1;
      column.style.left = box.left - frame.left + left + "px";
      column.style.top = box.top - frame.top + "px";
      column.style.width = Math.max(2, chart.valToPos(from + answer.width, "x") - left) + "px";
      column.style.height = box.height + "px";
      return column;
    });
    points.replaceChildren(...columns);
    const at = current >= 0 && current < columns.length ? current : columns.length - 1;
    if (columns[at]) columns[at].tabIndex = 0;
    if (focused && columns[at]) columns[at].focus({ preventScroll: true });
    else tip.hidden = true;
  };

  points.addEventListener("mouseover", (event) => event.target.matches("a") && show(event.target));
  points.addEventListener("mouseleave", hide);
  points.addEventListener("focusin", (event) => event.target.matches("a") && show(event.target));
  points.addEventListener("focusout", () => setTimeout(hide));
  points.addEventListener("keydown", (event) => {
    const columns = [...points.children];
    const steps = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: columns.length - 1 };
    if (event.key === "Escape") tip.hidden = true;
    const target = columns[steps[event.key]];
    if (!target) return;
    event.preventDefault();
    target.focus();
  });

  const load = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(place.dataset.decisions, { headers: { Accept: "application/json" } });
      if (answer.ok) draw(await answer.json());
    } catch {
      // The next turn tries again; the table below stays as it was.
    }
  };

  new MutationObserver(load).observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });
  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(load, 200);
  });
  load();
  setInterval(load, EVERY);
})();
