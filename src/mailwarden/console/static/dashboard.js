// Draws the decisions over time. The same numbers stand in a table below, for whoever sees no drawing.
"use strict";
(() => {
  const place = document.querySelector("[data-decisions]");
  if (!place || typeof uPlot === "undefined") return;
  const EVERY = 15000;
  let drawn = null;

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

  // A time of day, or the day where one begins; always UTC, as everywhere in the console.
  const told = (seconds) => {
    const text = new Date(seconds * 1000).toISOString();
    return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
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
      scales: {
        x: { range: () => [answer.times[0], answer.times[answer.times.length - 1] + answer.width] },
        y: { range: (_, __, most) => [0, Math.max(4, most * 1.05)] },
      },
      axes: [
        { ...axis, grid: { show: false }, values: (_, moments) => moments.map(told) },
        { ...axis, size: 54, values: (_, counts) => counts.map((count) => count.toLocaleString("en")) },
      ],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
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
