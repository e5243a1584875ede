"use strict";
// The workflow graph: panning and zooming, node states during a run, and input labels.
for (const pane of document.querySelectorAll("[data-pane]")) {
  const SVG = "http://www.w3.org/2000/svg";
  const LEGIBLE = 11 / 12.5; // the scale at which the smallest text of a drawing has 11 pixels
  const LARGEST = 1.3;
  // The same graph with fewer and fewer columns beside each other.
  const drawings = [pane.querySelector("svg"), ...(pane.querySelector("template")?.content.querySelectorAll("svg") ?? [])];
  const status = document.getElementById("graph-status");
  // A drawing that is too tall for the pane is scrolled in it.
  let [svg, nodes, tall] = [drawings[0], new Map(), false];
  const titles = (node) => node.querySelector("title").textContent;

  // -- panning and zooming -------------------------------------------------------------------------

  let [x, y, scale] = [0, 0, 1];
  const draw = () => { svg.style.transform = `translate(${x}px, ${y}px) scale(${scale})`; };
  const zoom = (by, atX = pane.clientWidth / 2, atY = pane.clientHeight / 2) => {
    const next = Math.min(12, Math.max(0.25, scale * by));
    [x, y] = [atX - ((atX - x) * next) / scale, atY - ((atY - y) * next) / scale];
    scale = next;
    draw();
  };
  // The whole drawing in the middle of the pane; a small one is not blown up.
  const fit = () => {
    scale = tall ? 1 : Math.min(1, LARGEST / fitting(svg));
    [x, y] = [pane.clientWidth, pane.clientHeight].map((side) => (side * (1 - scale)) / 2);
    draw();
  };
  const position = (event) => {
    const box = pane.getBoundingClientRect();
    return [event.clientX - box.x, event.clientY - box.y];
  };

  const pointers = new Map(); // touches by pointer ID
  let moved = 0; // pixels since the last pointer went down
  const pinch = () => {
    const [a, b] = [...pointers.values()];
    return [Math.hypot(a[0] - b[0], a[1] - b[1]), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  };
  pane.addEventListener("pointerdown", (event) => {
    pane.setPointerCapture(event.pointerId);
    if (!pointers.size) moved = 0;
    pointers.set(event.pointerId, position(event));
  });
  pane.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const [before, at] = [pointers.get(event.pointerId), position(event)];
    moved += Math.hypot(at[0] - before[0], at[1] - before[1]);
    if (pointers.size === 2 && !tall) {
      const [distance] = pinch();
      pointers.set(event.pointerId, at);
      const [now, middleX, middleY] = pinch();
      if (distance > 0) zoom(now / distance, middleX, middleY);
      return;
    }
    pointers.set(event.pointerId, at);
    if (tall) return;
    [x, y] = [x + at[0] - before[0], y + at[1] - before[1]];
    draw();
  });
  for (const type of ["pointerup", "pointercancel"]) pane.addEventListener(type, (event) => pointers.delete(event.pointerId));
  pane.addEventListener("pointerup", (event) => {
    const node = moved < 5 && document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-node]");
    if (node) choose(node);
  });
  pane.addEventListener("wheel", (event) => {
    if (tall || (!event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...position(event));
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    if (tall) return;
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

  const sizeOf = (drawing) => drawing.viewBox.baseVal;
  const width = () => pane.offsetWidth - 2; // without its border, and whether or not it has a scroll bar
  const fitting = (drawing) => Math.min(width() / sizeOf(drawing).width, pane.clientHeight / sizeOf(drawing).height);
  // The widest drawing with legible text.
  const bestDrawing = () => drawings.find((each) => width() / sizeOf(each).width >= LEGIBLE) ?? drawings.at(-1);

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
    const short = text.length > 25 ? `${text.slice(0, 24)}…` : text;
    node.append(element("rect", { class: "label", x: 8, y: -11, width: 12 + 7.5 * short.length, height: 20, rx: 8 }));
    node.append(element("text", { class: "input-names", x: 14, y: 4 }, short));
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
    const label = node.querySelector(".took") ?? node.appendChild(element("text", { class: "took", x: cardWidth - 4, y: cardHeight + 14 }));
    label.textContent = text;
  }

  function showMade(node, path) {
    const [cardWidth, cardHeight] = cardOf(node);
    const side = Math.min(cardHeight - 8, 76);
    node.querySelector(".made")?.remove();
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

  // A node that runs outside of the visible part is moved into its middle.
  function reveal(node) {
    const [area, box] = [pane.getBoundingClientRect(), node.getBoundingClientRect()];
    if (box.left >= area.left && box.right <= area.right && box.top >= area.top && box.bottom <= area.bottom) return;
    if (tall) { pane.scrollTo({ top: pane.scrollTop + (box.top + box.bottom - area.top - area.bottom) / 2, behavior: "smooth" }); return; }
    x += (area.left + area.right - box.left - box.right) / 2;
    y += (area.top + area.bottom - box.top - box.bottom) / 2;
    draw();
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
      if (node && detail.state === "started") reveal(node);
      return new Promise((next) => setTimeout(next, pause));
    });
  });

  // Shows the drawing for the width of the page, with the states of the run.
  function redraw() {
    const chosen = bestDrawing();
    pane.querySelector("svg").replaceWith(chosen);
    svg = chosen;
    tall = fitting(svg) < LEGIBLE && width() / sizeOf(svg).width >= LEGIBLE;
    svg.style.maxWidth = tall ? `${Math.round(LARGEST * sizeOf(svg).width)}px` : "";
    pane.classList.toggle("scrolls", tall);
    for (const each of document.querySelectorAll(".pane-tools")) each.classList.toggle("scrolls", tall);
    nodes = new Map([...svg.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each]));
    nodes.forEach(label);
    clear();
    shown.forEach(showState);
    results.forEach(showResult);
    fit();
    // A graph that is too wide for every drawing begins at its start.
    if (!tall && fitting(svg) < LEGIBLE) zoom(LEGIBLE / fitting(svg), 0);
  }
  let pixels = "";
  new ResizeObserver(() => {
    const now = `${pane.offsetWidth} ${pane.offsetHeight}`;
    if (pixels && now !== pixels) requestAnimationFrame(redraw);
    pixels = now;
  }).observe(pane);
  redraw();
}
