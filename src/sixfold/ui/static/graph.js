"use strict";
// The workflow graph: moving and zooming, node states during a run, and input labels.
for (const pane of document.querySelectorAll("[data-pane]")) {
  const SVG = "http://www.w3.org/2000/svg";
  const LEGIBLE = 11 / 12.5; // the scale at which the smallest text of a drawing has 11 pixels
  const SMALL_TEXT = 10 / 12.5; // the same with 10 pixels, for a drawing that is shown whole
  const LARGEST = 1.3;
  // The same graph with fewer and fewer columns beside each other, and then with compact nodes.
  const drawings = [pane.querySelector("svg"), ...(pane.querySelector("template")?.content.querySelectorAll("svg") ?? [])];
  const status = document.getElementById("graph-status");
  let [svg, nodes] = [drawings[0], new Map()];
  const titles = (node) => node.querySelector("title").textContent;

  // -- zooming, and moving what is larger than the pane ----------------------------------------------

  const SMALLEST = 0.1, GREATEST = 4;
  const sizeOf = (drawing) => drawing.viewBox.baseVal;
  // The size of the pane without its border, and whether or not it has scroll bars.
  const width = () => pane.offsetWidth - 2, height = () => pane.offsetHeight - 2;
  const fitting = (drawing) => Math.min(width() / sizeOf(drawing).width, height() / sizeOf(drawing).height);
  const largestDrawing = () => drawings.reduce((best, each) => (fitting(each) > fitting(best) ? each : best));
  // The drawing that is shown first, whole: with all values if its text has 10 pixels, or with the largest text.
  const bestDrawing = () => drawings.find((each) => fitting(each) >= SMALL_TEXT) ?? largestDrawing();
  const wholeScale = () => Math.min(LARGEST, fitting(svg));
  // The widest drawing with legible text, and its scale: as wide as the pane, or with the smallest legible text.
  const legibleDrawing = () => drawings.find((each) => width() / sizeOf(each).width >= LEGIBLE) ?? drawings.at(-1);
  const legibleScale = () => Math.max(LEGIBLE, Math.min(LARGEST, width() / sizeOf(svg).width));

  let scale = 1;
  let isChosen = false; // whether the user has changed the scale
  // The box of the drawing fills the pane, and is larger if the scale needs it; the drawing is in its middle.
  function setScale(next) {
    scale = Math.min(GREATEST, Math.max(Math.min(SMALLEST, wholeScale()), next));
    const [wide, tall] = [scale * sizeOf(svg).width, scale * sizeOf(svg).height];
    svg.style.width = wide > width() + 0.5 ? `${wide}px` : "";
    svg.style.height = tall > height() + 0.5 ? `${tall}px` : "";
    svg.style.transform = svg.style.width || svg.style.height ? "" : `scale(${scale / fitting(svg)})`;
  }
  // Changes the scale; what is at `from`, in pixels of the window, is at `to` afterwards.
  function zoom(by, from = middle(), to = from) {
    const place = new DOMPoint(...from).matrixTransform(svg.getScreenCTM().inverse());
    isChosen = true;
    setScale(scale * by);
    const now = place.matrixTransform(svg.getScreenCTM());
    pane.scrollBy({ left: now.x - to[0], top: now.y - to[1], behavior: "instant" });
  }
  function middle() {
    const box = pane.getBoundingClientRect();
    return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  }
  // The whole graph; a second time, the part of it that is legible with all values.
  function fit() {
    const isWhole = svg === bestDrawing() && Math.abs(scale / wholeScale() - 1) < 0.01;
    show(isWhole ? legibleDrawing() : bestDrawing());
    setScale(isWhole ? legibleScale() : wholeScale());
    isChosen = true;
  }

  let dragPoint = null; // where the mouse is that drags the drawing
  let moved = 0; // pixels since the last pointer went down
  pane.addEventListener("pointerdown", (event) => {
    moved = 0;
    if (event.pointerType !== "mouse" || event.button) return; // a finger scrolls
    pane.setPointerCapture(event.pointerId);
    dragPoint = [event.clientX, event.clientY];
  });
  pane.addEventListener("pointermove", (event) => {
    if (!dragPoint) return;
    const [byX, byY] = [event.clientX - dragPoint[0], event.clientY - dragPoint[1]];
    dragPoint = [event.clientX, event.clientY];
    moved += Math.hypot(byX, byY);
    pane.scrollBy({ left: -byX, top: -byY, behavior: "instant" });
  });
  for (const type of ["pointerup", "pointercancel"]) pane.addEventListener(type, () => { dragPoint = null; });
  pane.addEventListener("pointerup", (event) => {
    const node = moved < 5 && !event.button && document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-node]");
    if (node) choose(node);
  });
  const pinch = ([a, b]) => [Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), [(a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2]];
  let lastPinch = null; // distance and middle of two fingers
  pane.addEventListener("touchstart", ({ touches }) => { lastPinch = touches.length === 2 ? pinch(touches) : null; }, { passive: true });
  pane.addEventListener("touchmove", (event) => {
    if (!lastPinch || event.touches.length !== 2 || !event.cancelable) return;
    event.preventDefault();
    const now = pinch(event.touches);
    if (lastPinch[0] > 0) zoom(now[0] / lastPinch[0], lastPinch[1], now[1]);
    lastPinch = now;
  }, { passive: false });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, [event.clientX, event.clientY]);
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { "+": 1.25, "=": 1.25, "-": 0.8 }[event.key];
    if (by) zoom(by);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => (Number(button.dataset.zoom) ? zoom(Number(button.dataset.zoom)) : fit()));
  }

  // -- inputs on their nodes -----------------------------------------------------------------------

  const element = (name, attributes, text = "") => {
    const created = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
    created.textContent = text;
    return created;
  };
  const field = (name) => document.getElementById(`in-${name}`);
  const inputsByNode = new Map(); // names by the id of a node
  for (const row of document.querySelectorAll("[data-input]")) {
    const id = row.dataset.at;
    inputsByNode.set(id, [...(inputsByNode.get(id) ?? []), row.dataset.input]);
    const highlight = (on) => nodes.get(id)?.classList.toggle("highlighted", on);
    for (const target of [row, field(row.dataset.input)?.closest(".field")]) {
      target?.addEventListener("pointerenter", () => highlight(true));
      target?.addEventListener("pointerleave", () => highlight(target.contains(document.activeElement)));
      target?.addEventListener("focusin", () => highlight(true));
      target?.addEventListener("focusout", () => highlight(false));
    }
  }
  function label(node) {
    const names = inputsByNode.get(node.dataset.node);
    if (!names || node.classList.contains("has-inputs")) return;
    node.classList.add("has-inputs");
    const text = names.join(", ");
    const most = Math.min(25, Math.floor((cardOf(node)[0] - 20) / 7.5));
    const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
    const top = svg.classList.contains("compact") ? -16 : -11;
    node.append(element("rect", { class: "label", x: 8, y: top, width: 12 + 7.5 * short.length, height: 20, rx: 8 }));
    node.append(element("text", { class: "input-names", x: 14, y: top + 15 }, short));
  }

  // A click leads to the first input of a node.
  function choose(node) {
    const names = inputsByNode.get(node.dataset.node);
    const input = field(names?.[0]);
    const target = input?.type === "hidden" || input?.hidden ? input.closest(".field") : input;
    for (const each of nodes.values()) each.classList.toggle("shown", each === node);
    status.textContent = target ? `${titles(node)}: ${names.join(", ")}` : `${titles(node)} has no inputs in the form.`;
    target?.focus({ preventScroll: true });
    target?.scrollIntoView({ block: "nearest" });
  }

  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      const ids = button.dataset.show.split(" ");
      for (const [id, node] of nodes) node.classList.toggle("shown", ids.includes(id));
      pane.scrollIntoView({ block: "nearest" });
    });
  }

  // -- a run ---------------------------------------------------------------------------------------

  const STATES = ["started", "finished", "cached", "failed"];
  const finishedNodes = new Set();
  const finished = new Map(); // the last event of each finished node
  let [shown, results] = [[], []]; // the events of this run, and what its nodes made

  function reset() {
    [shown, results] = [[], []];
    clear();
  }

  function clear() {
    finishedNodes.clear();
    finished.clear();
    for (const added of svg.querySelectorAll(".took, .made")) added.remove();
    for (const node of nodes.values()) moveTexts(node, 0);
    for (const node of nodes.values()) {
      node.classList.remove(...STATES);
      node.querySelector(".progress")?.remove();
    }
    for (const link of svg.querySelectorAll(".flowing")) link.classList.remove("flowing");
  }

  function showProgress(node, share) {
    const card = node.querySelector(".card");
    const bar = node.querySelector(".progress") ?? node.appendChild(element("rect", { class: "progress", x: 10, height: 3, rx: 1.5 }));
    bar.setAttribute("y", card.getAttribute("height") - 7);
    bar.setAttribute("width", Math.max(0, share) * (card.getAttribute("width") - 20));
  }

  const cardOf = (node) => ["width", "height"].map((name) => Number(node.querySelector(".card").getAttribute(name)));

  function showTook(node, text) {
    const [cardWidth, cardHeight] = cardOf(node);
    const label = node.querySelector(".took") ?? node.appendChild(element("text", { class: "took", y: cardHeight + 14 }));
    label.textContent = text;
    label.setAttribute("x", Math.max(cardWidth - 4, label.getComputedTextLength() - 10)); // longer than a compact node
  }

  // Keeps the texts of a node out of the space at its right edge that an image takes.
  function moveTexts(node, taken) {
    const right = cardOf(node)[0] - 4 - taken, number = node.querySelector(".id");
    number?.setAttribute("x", right - 8);
    const beforeNumber = number ? right - 16 - number.getComputedTextLength() : right;
    for (const text of node.querySelectorAll(".title, .value")) {
      if (!taken && text.dataset.whole === undefined) continue;
      const whole = (text.dataset.whole ??= text.textContent);
      const space = (text.classList.contains("title") ? beforeNumber : right - 4) - Number(text.getAttribute("x"));
      text.textContent = whole;
      for (let length = whole.length - 1; taken && length > 0 && text.getComputedTextLength() > space; length -= 1) text.textContent = `${whole.slice(0, length).trimEnd()}…`;
    }
  }

  function showMade(node, path) {
    const [cardWidth, cardHeight] = cardOf(node);
    const side = Math.min(cardHeight - 8, 76);
    node.querySelector(".made")?.remove();
    moveTexts(node, side + 4);
    node.append(element("image", { class: "made", href: path, x: cardWidth - side - 4, y: 4, width: side, height: side, preserveAspectRatio: "xMidYMid slice" }));
  }

  const secondsText = ({ state, seconds }) => (state === "cached" ? "cached" : seconds === undefined ? "" : seconds < 0.95 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`);

  // What the nodes cost and made is known when the run is paid.
  async function showResults({ detail: { id, status: outcome } }) {
    if (outcome !== "succeeded") return;
    const { ok, data } = await connection.request(`/pages/predictions/${id}/nodes`);
    if (!ok) return;
    await queue;
    results = [...finished].map(([nodeId, event]) => {
      const parts = (event.parts ?? []).map((part) => data.parts[part]).filter(Boolean);
      const text = [secondsText(event), ...parts.map((part) => part.cost)].filter(Boolean).join(" · ");
      return [nodeId, text, parts.find((part) => part.file)?.file ?? data.nodes[nodeId]];
    });
    results.forEach(showResult);
  }

  function showResult([nodeId, text, path]) {
    showTook(nodes.get(nodeId), text);
    if (path) showMade(nodes.get(nodeId), path);
  }

  // A node outside of the visible part is moved into its middle.
  function reveal(node, behavior) {
    const [area, box] = [pane.getBoundingClientRect(), node.getBoundingClientRect()];
    if (box.left >= area.left && box.right <= area.right && box.top >= area.top && box.bottom <= area.bottom) return;
    const [left, top] = [(box.left + box.right - area.left - area.right) / 2, (box.top + box.bottom - area.top - area.bottom) / 2];
    pane.scrollBy({ left, top, behavior });
  }

  function showState(event) {
    const { node: id, state, progress } = event;
    const node = nodes.get(String(id));
    if (!node) return;
    if (state === "progress") { showProgress(node, progress); return; }
    node.classList.remove(...STATES);
    node.classList.add(state);
    if (state !== "started") finishedNodes.add(id);
    if (state === "finished" || state === "cached") {
      finished.set(String(id), event);
      showProgress(node, 1);
      showTook(node, secondsText(event));
    }
    for (const link of svg.querySelectorAll(`[data-to="${CSS.escape(id)}"]`)) link.classList.toggle("flowing", state === "started");
    const word = { started: "is running", finished: "has finished", cached: "was cached", failed: "has failed" }[state];
    status.textContent = `${finishedNodes.size} of ${nodes.size} nodes. ${titles(node)} ${word}.`;
  }

  // States are shown one after another, so that fast nodes are visible too.
  let queue = Promise.resolve();
  const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 60;
  document.addEventListener("followed", reset);
  document.addEventListener("ended", showResults);
  document.addEventListener("node", ({ detail }) => {
    queue = queue.then(() => {
      shown.push(detail);
      showState(detail);
      const node = nodes.get(String(detail.node));
      if (node && detail.state === "started") reveal(node, pause ? "smooth" : "instant");
      return new Promise((next) => setTimeout(next, pause));
    });
  });

  // Shows a drawing with the states of the run.
  function show(chosen) {
    if (chosen === svg && nodes.size) return;
    pane.querySelector("svg").replaceWith(chosen);
    svg = chosen;
    nodes = new Map([...svg.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each]));
    nodes.forEach(label);
    clear();
    shown.forEach(showState);
    results.forEach(showResult);
    pane.scrollTo(0, 0);
  }
  // Shows the drawing for the width of the page, at its first scale unless the user has chosen another.
  function redraw() {
    const best = bestDrawing();
    if (best !== lastBest) { isChosen = false; lastBest = best; show(best); }
    setScale(isChosen ? scale : wholeScale());
  }
  let pixels = "", lastBest = null;
  new ResizeObserver(() => {
    const now = `${pane.offsetWidth} ${pane.offsetHeight}`;
    if (pixels && now !== pixels) requestAnimationFrame(redraw);
    pixels = now;
  }).observe(pane);
  redraw();
  const missing = [...nodes.values()].find((node) => node.classList.contains("missing"));
  if (missing) reveal(missing, "instant");
}
