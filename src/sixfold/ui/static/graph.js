"use strict";
// The workflow graph: panning and zooming, node states during a run, and input labels.
for (const pane of document.querySelectorAll("[data-pane]")) {
  const SVG = "http://www.w3.org/2000/svg";
  const picture = pane.querySelector("svg");
  const said = document.getElementById("lit");
  const nodes = new Map([...picture.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each]));
  const titles = (node) => node.querySelector("title").textContent;

  // -- panning and zooming -------------------------------------------------------------------------

  let [x, y, scale] = [0, 0, 1];
  const draw = () => { picture.style.transform = `translate(${x}px, ${y}px) scale(${scale})`; };
  const closer = (by, atX = pane.clientWidth / 2, atY = pane.clientHeight / 2) => {
    const next = Math.min(12, Math.max(0.5, scale * by));
    [x, y] = [atX - ((atX - x) * next) / scale, atY - ((atY - y) * next) / scale];
    scale = next;
    draw();
  };
  const whole = () => { [x, y, scale] = [0, 0, 1]; draw(); };
  const within = (event) => {
    const box = pane.getBoundingClientRect();
    return [event.clientX - box.x, event.clientY - box.y];
  };

  const held = new Map(); // touches by pointer ID
  const spread = () => {
    const [a, b] = [...held.values()];
    return [Math.hypot(a[0] - b[0], a[1] - b[1]), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  };
  pane.addEventListener("pointerdown", (event) => {
    pane.setPointerCapture(event.pointerId);
    held.set(event.pointerId, within(event));
  });
  pane.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const [before, at] = [held.get(event.pointerId), within(event)];
    if (held.size === 2) {
      const [apart] = spread();
      held.set(event.pointerId, at);
      const [now, middleX, middleY] = spread();
      if (apart > 0) closer(now / apart, middleX, middleY);
      return;
    }
    held.set(event.pointerId, at);
    [x, y] = [x + at[0] - before[0], y + at[1] - before[1]];
    draw();
  });
  for (const type of ["pointerup", "pointercancel"]) pane.addEventListener(type, (event) => held.delete(event.pointerId));
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    closer(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...within(event));
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (step) { [x, y] = [x + step[0], y + step[1]]; draw(); }
    else if (event.key === "+" || event.key === "-") closer(event.key === "+" ? 1.25 : 0.8);
    else if (event.key === "0") whole();
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-closer]")) {
    button.addEventListener("click", () => (Number(button.dataset.closer) ? closer(Number(button.dataset.closer)) : whole()));
  }

  const { width: wide, height: tall } = picture.viewBox.baseVal;
  pane.style.height = `${Math.min(0.72 * innerHeight, Math.max(innerWidth > 700 ? 320 : 220, (pane.clientWidth * tall) / wide))}px`;
  const small = 0.9 / Math.min(pane.clientWidth / wide, pane.clientHeight / tall); // at least ten pixels for the smallest text
  if (small > 1) closer(small, 0); // zoom in to the start of the graph if its text would be illegible

  // -- inputs on their nodes -----------------------------------------------------------------------

  const piece = (name, facts, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const field = (name) => document.getElementById(`in-${name}`);
  const taking = new Map();
  for (const row of document.querySelectorAll("[data-input]")) {
    const node = nodes.get(row.dataset.at);
    if (!node) continue;
    taking.set(node, [...(taking.get(node) ?? []), row.dataset.input]);
    const mean = (on) => node.classList.toggle("meant", on);
    for (const place of [row, field(row.dataset.input)?.closest(".field")]) {
      place?.addEventListener("pointerenter", () => mean(true));
      place?.addEventListener("pointerleave", () => mean(place.contains(document.activeElement)));
      place?.addEventListener("focusin", () => mean(true));
      place?.addEventListener("focusout", () => mean(false));
    }
  }
  for (const [node, names] of taking) {
    node.classList.add("takes");
    const text = names.join(", ");
    const short = text.length > 32 ? `${text.slice(0, 31)}…` : text;
    node.append(piece("rect", { class: "label", x: 8, y: -9, width: 12 + 6.1 * short.length, height: 17, rx: 8 }));
    node.append(piece("text", { class: "taking", x: 14, y: 3 }, short));
    node.addEventListener("dblclick", () => field(names[0])?.focus());
  }

  // -- a run ---------------------------------------------------------------------------------------

  const STATES = ["started", "finished", "cached", "failed"];
  const ended = new Set();

  function reset() {
    ended.clear();
    for (const node of nodes.values()) {
      node.classList.remove(...STATES);
      node.querySelector(".done")?.remove();
    }
    for (const link of picture.querySelectorAll(".flowing")) link.classList.remove("flowing");
  }

  function done(node, share) {
    const card = node.querySelector(".card");
    const bar = node.querySelector(".done") ?? node.appendChild(piece("rect", { class: "done", x: 10, height: 3, rx: 1.5 }));
    bar.setAttribute("y", card.getAttribute("height") - 7);
    bar.setAttribute("width", Math.max(0, share) * (card.getAttribute("width") - 20));
  }

  function light({ node: id, state, progress }) {
    const node = nodes.get(String(id));
    if (!node) return;
    if (state === "progress") { done(node, progress); return; }
    node.classList.remove(...STATES);
    node.classList.add(state);
    if (state !== "started") ended.add(id);
    if (state === "finished" || state === "cached") done(node, 1);
    for (const link of picture.querySelectorAll(`[data-to="${CSS.escape(id)}"]`)) link.classList.toggle("flowing", state === "started");
    const word = { started: "runs", finished: "is done", cached: "was done before", failed: "failed" }[state];
    said.textContent = `${ended.size} of ${nodes.size} nodes. ${titles(node)} ${word}.`;
  }

  let turn = Promise.resolve(); // one after another, so that fast nodes are visible too
  const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 60;
  document.addEventListener("followed", reset);
  document.addEventListener("node", (event) => {
    turn = turn.then(() => { light(event.detail); return new Promise((next) => setTimeout(next, pause)); });
  });
}
