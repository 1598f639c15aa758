"use strict";
// Returns what a reader of a page would miss: texts that are cut off, outside their box, below others or not there,
// colours that do not stand out, and options that are broken at a hyphen. A page on paper is wholly open, cannot be
// scrolled, and has the backgrounds that ask to be printed.
function findings(window, isPaper) {
  const page = window.document;
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const style = (element, part) => window.getComputedStyle(element, part);
  if (!isPaper) for (const details of page.querySelectorAll("details")) details.open = true;

  for (const element of page.querySelectorAll("body, body *")) checkBox(element);
  const lines = textLines();
  lines.forEach(checkLine);
  checkOverlaps(lines);
  checkGraphics();
  return found;

  function checkBox(element) {
    const { overflowX, overflowY, clipPath } = style(element);
    if (element.closest("svg, thead") || clipPath !== "none") return;
    const isCut = (overflow, inner, outer) => overflow !== "visible" && outer > 0 && inner > outer + 1;
    if (isCut(overflowX, element.scrollWidth, element.clientWidth)
        || !scrolls(element) && isCut(overflowY, element.scrollHeight, element.clientHeight)) say("cut off", element);
    const box = element.getBoundingClientRect();
    if (box.right > page.documentElement.clientWidth + 1) say("outside the page", element);
    if (box.width > 0 && box.left < -1) say("left of the page", element);
  }

  // A long text may be scrolled down.
  function scrolls(element) {
    return !isPaper && ["auto", "scroll"].includes(style(element).overflowY);
  }

  function isScrolledAway(box, element) {
    if (!element) return false;
    const around = element.getBoundingClientRect();
    return scrolls(element) && (box.bottom > around.bottom || box.top < around.top)
      || isScrolledAway(box, element.parentElement);
  }

  // Each line of each text, with its box and the element that it is in.
  function textLines() {
    const lines = [];
    const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const element = node.parentElement;
      if (!node.data.trim() || element.closest("svg, script, style, textarea, [hidden]")) continue;
      const boxes = [...boxesOf(node, 0, node.data.length)].filter((box) => box.width > 1 && box.height > 1);
      const isThere = boxes.length > 0 && element.checkVisibility({
        contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true,
      });
      if (isThere && !isHead(element)) {
        lines.push(...boxes.filter((box) => !isScrolledAway(box, element)).map((box) => ({ box, element })));
        checkWords(node);
        checkContrast(element);
      } else if (!isReplaced(element)) say("not there", element);
    }
    return lines;
  }

  function boxesOf(node, from, until) {
    const range = page.createRange();
    range.setStart(node, from);
    range.setEnd(node, until);
    return range.getClientRects();
  }

  // The head of a table whose rows are blocks is hidden: each cell has its own.
  function isHead(element) {
    const head = element.closest("thead");
    return head && style(head).position === "absolute";
  }

  // Whether a hidden text is shown in another way.
  function isReplaced(element) {
    if (isHead(element)) {
      const cells = [...element.closest("table").querySelectorAll("td[data-head]:not([data-head=''])")];
      return cells.every((cell) => style(cell, "::before").content.includes(cell.dataset.head));
    }
    return isPaper ? element.closest("summary") : element.matches(".minor") && window.innerWidth < 640;
  }

  function checkLine({ box, element }) {
    let isOwn = true;
    for (let at = element; at !== page.documentElement; at = at.parentElement) {
      const { display, overflowX, overflowY, clipPath } = style(at);
      if (display === "inline" || display === "contents") continue;
      if (scrolls(at)) return;
      const around = at.getBoundingClientRect();
      // A space that is kept may stand beside the end of its line.
      const space = style(element).whiteSpace.startsWith("pre") ? 0.7 * box.height : 0;
      const isWider = box.left < around.left - 1 || box.right > around.right + 1 + space;
      const isTaller = box.top < around.top - 0.35 * box.height || box.bottom > around.bottom + 0.35 * box.height;
      const isCut = ["hidden", "clip"].includes(overflowX) && isWider || ["hidden", "clip"].includes(overflowY) && isTaller;
      if (isCut || clipPath !== "none") say("text cut off", element);
      else if (isOwn && (isWider || isTaller)) say("text outside its box", element);
      isOwn = false;
    }
  }

  function checkWords(node) {
    for (const { 0: word, index } of node.data.matchAll(/(?<![^\s([{"'])--?[a-z]\S*/gi)) {
      const parts = [...boxesOf(node, index, index + word.length)];
      const tops = new Set(parts.map((part) => Math.round(part.top)));
      const wide = parts.reduce((sum, part) => sum + part.width, 0);
      if (tops.size > 1 && wide <= blockOf(node.parentElement).clientWidth) say(`broken at a hyphen: ${word}`, node.parentElement);
    }
  }

  function blockOf(element) {
    return style(element).display === "inline" ? blockOf(element.parentElement) : element;
  }

  // No text lies over another.
  function checkOverlaps(lines) {
    lines.sort((a, b) => a.box.top - b.box.top);
    lines.forEach((one, at) => {
      for (const other of lines.slice(at + 1)) {
        const [a, b] = [one.box, other.box];
        if (b.top > a.bottom) break;
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && tall > 0.35 * Math.min(a.height, b.height))
          say(`over ${other.element.outerHTML.slice(0, 80)}`, one.element);
      }
    });
  }

  // Texts need 4.5:1 and graphics 3:1: WCAG 1.4.3 and 1.4.11.
  function checkContrast(element) {
    const ground = groundOf(element);
    if (contrast(over(colour(style(element).color, opacityOf(element)), ground), ground) < 4.5) say("hard to read", element);
  }

  function checkGraphics() {
    const stands = (element, ink, alpha, ground) => {
      if (contrast(over(colour(ink, alpha * opacityOf(element)), ground), ground) < 3) say("does not stand out", element);
    };
    // A bar may have any shade, so a mark stands out from what is drawn below it.
    for (const mark of page.querySelectorAll(".mark, .again, .straggler")) {
      const halo = mark.previousElementSibling;
      const [ink, below] = [mark, halo].map((it) => style(it));
      const ground = over(colour(below.stroke, below.strokeOpacity * opacityOf(halo)), [128, 128, 128]);
      stands(mark, ink.stroke, ink.strokeOpacity, ground);
      const isAround = mark.getAttribute("d") === halo.getAttribute("d")
        && parseFloat(ink.strokeWidth) >= 1.5 && parseFloat(below.strokeWidth) >= parseFloat(ink.strokeWidth) + 2;
      if (!isAround) say("has no halo", mark);
    }
    for (const curve of page.querySelectorAll(".curve"))
      stands(curve, style(curve).stroke, style(curve).strokeOpacity, groundOf(curve));
    // The shade of a column is its opacity.
    for (const column of page.querySelectorAll("path.work, path.loading, path.held_back, path.order, path.journal, path.dead"))
      stands(column, style(column).fill, style(column).fillOpacity / column.getAttribute("fill-opacity"), groundOf(column));
    for (const swatch of page.querySelectorAll(".failure, .kind, .shade:last-of-type i, .bar span"))
      if (swatch.checkVisibility()) stands(swatch, shown(swatch), 1, groundOf(swatch.parentElement));
    for (const swatch of page.querySelectorAll(".outline")) stands(swatch, style(swatch).borderTopColor, 1, groundOf(swatch));
  }

  // The background that an element has of its own.
  function shown(element) {
    const { backgroundColor, webkitPrintColorAdjust } = style(element);
    return isPaper && webkitPrintColorAdjust !== "exact" ? "rgba(0, 0, 0, 0)" : backgroundColor;
  }

  function groundOf(element) {
    if (!element) return [255, 255, 255];
    const own = colour(shown(element), 1);
    return own.alpha === 1 ? own.parts : over(own, groundOf(element.parentElement));
  }

  function opacityOf(element) {
    return element ? style(element).opacity * opacityOf(element.parentElement) : 1;
  }

  function colour(text, opacity) {
    if (text === "none") return { parts: [0, 0, 0], alpha: 0 };
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { parts: [red, green, blue], alpha: alpha * opacity };
  }

  function over({ parts, alpha }, ground) {
    return parts.map((part, at) => alpha * part + (1 - alpha) * ground[at]);
  }

  function contrast(...colours) {
    const [less, more] = colours.map(light).sort((a, b) => a - b);
    return (more + 0.05) / (less + 0.05);
  }

  function light(parts) {
    const [red, green, blue] = parts.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }
}
