"use strict";
// The workflow graph: panning and zooming, node states during a run, and input labels.
for (const pane of document.querySelectorAll("[data-pane]")) {
  const SVG = "http://www.w3.org/2000/svg";
  const svg = pane.querySelector("svg");
  const status = document.getElementById("graph-status");
  const nodes = new Map([...svg.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each]));
  const titles = (node) => node.querySelector("title").textContent;

  // -- panning and zooming -------------------------------------------------------------------------

  let [x, y, scale] = [0, 0, 1];
  const draw = () => { svg.style.transform = `translate(${x}px, ${y}px) scale(${scale})`; };
  const zoom = (by, atX = pane.clientWidth / 2, atY = pane.clientHeight / 2) => {
    const next = Math.min(12, Math.max(0.5, scale * by));
    [x, y] = [atX - ((atX - x) * next) / scale, atY - ((atY - y) * next) / scale];
    scale = next;
    draw();
  };
  const fit = () => { [x, y, scale] = [0, 0, 1]; draw(); };
  const position = (event) => {
    const box = pane.getBoundingClientRect();
    return [event.clientX - box.x, event.clientY - box.y];
  };

  const pointers = new Map(); // touches by pointer ID
  const pinch = () => {
    const [a, b] = [...pointers.values()];
    return [Math.hypot(a[0] - b[0], a[1] - b[1]), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  };
  pane.addEventListener("pointerdown", (event) => {
    pane.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, position(event));
  });
  pane.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const [before, at] = [pointers.get(event.pointerId), position(event)];
    if (pointers.size === 2) {
      const [distance] = pinch();
      pointers.set(event.pointerId, at);
      const [now, middleX, middleY] = pinch();
      if (distance > 0) zoom(now / distance, middleX, middleY);
      return;
    }
    pointers.set(event.pointerId, at);
    [x, y] = [x + at[0] - before[0], y + at[1] - before[1]];
    draw();
  });
  for (const type of ["pointerup", "pointercancel"]) pane.addEventListener(type, (event) => pointers.delete(event.pointerId));
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...position(event));
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (step) { [x, y] = [x + step[0], y + step[1]]; draw(); }
    else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.25 : 0.8);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => (Number(button.dataset.zoom) ? zoom(Number(button.dataset.zoom)) : fit()));
  }

  const { width, height } = svg.viewBox.baseVal;
  pane.style.height = `${Math.min(0.6 * innerHeight, Math.max(innerWidth > 700 ? 320 : 220, (pane.clientWidth * height) / width))}px`;
  // On a phone, zoom in to the start of the graph if its smallest text would have less than ten pixels.
  const legible = 0.9 / Math.min(pane.clientWidth / width, pane.clientHeight / height);
  if (legible > 1 && innerWidth <= 700) zoom(legible, 0);

  // -- inputs on their nodes -----------------------------------------------------------------------

  const element = (name, attributes, text = "") => {
    const created = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
    created.textContent = text;
    return created;
  };
  const field = (name) => document.getElementById(`in-${name}`);
  const inputsByNode = new Map();
  for (const row of document.querySelectorAll("[data-input]")) {
    const node = nodes.get(row.dataset.at);
    if (!node) continue;
    inputsByNode.set(node, [...(inputsByNode.get(node) ?? []), row.dataset.input]);
    const highlight = (on) => node.classList.toggle("highlighted", on);
    for (const target of [row, field(row.dataset.input)?.closest(".field")]) {
      target?.addEventListener("pointerenter", () => highlight(true));
      target?.addEventListener("pointerleave", () => highlight(target.contains(document.activeElement)));
      target?.addEventListener("focusin", () => highlight(true));
      target?.addEventListener("focusout", () => highlight(false));
    }
  }
  for (const [node, names] of inputsByNode) {
    node.classList.add("has-inputs");
    const text = names.join(", ");
    const short = text.length > 32 ? `${text.slice(0, 31)}…` : text;
    node.append(element("rect", { class: "label", x: 8, y: -9, width: 12 + 6.1 * short.length, height: 17, rx: 8 }));
    node.append(element("text", { class: "input-names", x: 14, y: 3 }, short));
    node.addEventListener("dblclick", () => field(names[0])?.focus());
  }

  // -- a run ---------------------------------------------------------------------------------------

  const STATES = ["started", "finished", "cached", "failed"];
  const finishedNodes = new Set();

  function reset() {
    finishedNodes.clear();
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

  function showState({ node: id, state, progress }) {
    const node = nodes.get(String(id));
    if (!node) return;
    if (state === "progress") { showProgress(node, progress); return; }
    node.classList.remove(...STATES);
    node.classList.add(state);
    if (state !== "started") finishedNodes.add(id);
    if (state === "finished" || state === "cached") showProgress(node, 1);
    for (const link of svg.querySelectorAll(`[data-to="${CSS.escape(id)}"]`)) link.classList.toggle("flowing", state === "started");
    const word = { started: "is running", finished: "has finished", cached: "was cached", failed: "has failed" }[state];
    status.textContent = `${finishedNodes.size} of ${nodes.size} nodes. ${titles(node)} ${word}.`;
  }

  // States are shown one after another, so that fast nodes are visible too.
  let queue = Promise.resolve();
  const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 60;
  document.addEventListener("followed", reset);
  document.addEventListener("node", (event) => {
    queue = queue.then(() => { showState(event.detail); return new Promise((next) => setTimeout(next, pause)); });
  });
}
