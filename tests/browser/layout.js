// Says what is wrong with the layout of the open page: text over text, cut tables, pop-ups beyond the window.
() => {
  const SLACK = 2; // pixels: rectangles of text touch, and browsers round
  const WIDE = 1280;
  const EDGE = document.documentElement.clientWidth;
  const styles = new Map();
  const style = (element) => styles.get(element) ?? styles.set(element, getComputedStyle(element)).get(element);
  const quote = (element) => {
    const name = [element.localName, ...element.classList].join(".");
    return `${name} "${element.textContent.trim().replace(/\s+/g, " ").slice(0, 50)}"`;
  };
  const visible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    !element.closest("svg, option, [role=tooltip], .visually-hidden, .mw-skip");
  const cut = (one, other) => ({
    left: Math.max(one.left, other.left),
    top: Math.max(one.top, other.top),
    right: Math.min(one.right, other.right),
    bottom: Math.min(one.bottom, other.bottom),
  });
  const meets = (box) => box.right - box.left > SLACK && box.bottom - box.top > SLACK;

  // The part of the page in which an element can be seen: the boxes that cut it off, as positions decide.
  const views = new Map([[null, { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity }]]);
  const view = (element) => {
    if (!views.has(element)) {
      const { position, overflowX, overflowY } = style(element);
      const outer = view(/absolute|fixed/.test(position) ? element.offsetParent : element.parentElement);
      const cuts = overflowX !== "visible" || overflowY !== "visible";
      views.set(element, cuts && element.parentElement ? cut(outer, element.getBoundingClientRect()) : outer);
    }
    return views.get(element);
  };
  // What stays in place while the page scrolls lies over other text on purpose.
  const layer = (element) => {
    for (let outer = element; outer; outer = outer.parentElement) {
      if (/sticky|fixed/.test(style(outer).position)) return outer;
    }
    return null;
  };

  function overlaps() {
    const boxes = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !visible(element)) continue;
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      for (const rectangle of range.getClientRects()) {
        const box = cut(rectangle, view(element));
        if (meets(box)) boxes.push({ ...box, element, layer: layer(element) });
      }
    }
    boxes.sort((one, other) => one.top - other.top);
    const pairs = new Set();
    boxes.forEach((one, index) => {
      for (let next = index + 1; next < boxes.length && boxes[next].top < one.bottom - SLACK; next += 1) {
        const other = boxes[next];
        const related = one.element.contains(other.element) || other.element.contains(one.element);
        if (!related && one.layer === other.layer && meets(cut(one, other))) {
          pairs.add(`${quote(other.element)} lies over ${quote(one.element)}`);
        }
      }
    });
    return [...pairs];
  }

  function cutTables() {
    const hides = (element) =>
      /hidden|clip/.test(style(element).overflowX) &&
      style(element).textOverflow !== "ellipsis" &&
      element.scrollWidth > element.clientWidth + SLACK;
    // A table that its container scrolls is whole in a phone and in the pane; a wide window has room for every column.
    const beyond = (table) => {
      let outer = table.parentElement;
      while (outer && !outer.matches(".card") && !/auto|scroll/.test(style(outer).overflowX)) outer = outer.parentElement;
      const isScrolled = outer && !outer.matches(".card");
      const edge = outer ? Math.min(EDGE, outer.getBoundingClientRect().right) : EDGE;
      return table.getBoundingClientRect().right > edge + SLACK && !(isScrolled && (EDGE < WIDE || table.closest("#pane")));
    };
    const tables = [...document.querySelectorAll("table")].filter(visible);
    const parts = tables.flatMap((table) => [table, ...table.querySelectorAll("*")]).filter(visible);
    return [
      ...parts.filter(hides).map((part) => `${quote(part)} is cut off`),
      ...tables.filter(beyond).map((table) => `${quote(table)} reaches beyond its place`),
    ];
  }

  function popupsBeyond() {
    const problems = [];
    for (const details of [...document.querySelectorAll("details:not([open])")].filter(visible)) {
      details.open = true;
      for (const body of [...details.children].filter((child) => getComputedStyle(child).position === "absolute")) {
        const { left, right } = body.getBoundingClientRect();
        const wide = body.scrollWidth > body.clientWidth + SLACK;
        if (left < 0 || right > EDGE || wide) problems.push(`${quote(details)} opens beyond the window`);
      }
      details.open = false;
    }
    return problems;
  }

  return [...overlaps(), ...cutTables(), ...popupsBeyond()];
}
