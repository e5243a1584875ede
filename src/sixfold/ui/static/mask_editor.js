"use strict";
// Paints the mask of a form's image: white where the brush was, black elsewhere. run.js uploads the result.
(() => {
  const MAX_SIDE = 2048; // pixels of the mask, which an engine scales to the image
  const STEP = 16; // pixels that an arrow key moves the brush

  function element(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  function paint(context, { points, size, erase }, color) {
    context.globalCompositeOperation = erase ? "destination-out" : "source-over";
    Object.assign(context, { strokeStyle: color, lineWidth: size, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    points.forEach(([x, y], index) => context[index ? "lineTo" : "moveTo"](x, y));
    if (points.length === 1) context.lineTo(points[0][0] + 0.01, points[0][1]);
    context.stroke();
  }

  // The strokes in one color on a canvas of this size; `ground` fills the rest.
  function layer(width, height, strokes, color, ground) {
    const [strokesOnly, whole] = [0, 0].map(() => element("canvas", { width, height }));
    strokes.forEach((stroke) => paint(strokesOnly.getContext("2d"), stroke, color));
    const context = whole.getContext("2d");
    Object.assign(context, { fillStyle: ground });
    context.fillRect(0, 0, width, height);
    context.drawImage(strokesOnly, 0, 0);
    return whole;
  }

  function openEditor(source, zone) {
    const scale = Math.min(1, MAX_SIDE / Math.max(source.naturalWidth, source.naturalHeight));
    const [width, height] = [source.naturalWidth, source.naturalHeight].map((side) => Math.max(1, Math.round(side * scale)));
    const strokes = [];
    let stroke = null;
    let cursor = [Math.round(width / 2), Math.round(height / 2)];
    const canvas = element("canvas", { width, height, tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "The image: paint with the pointer, or move with the arrow keys and paint with the space key");
    const size = element("input", { type: "range", min: 1, max: 30, value: 8, id: "mask-brush" });
    const erase = element("input", { type: "checkbox", id: "mask-erase" });
    const [undo, clear, cancel, use] = [["Undo", "quiet"], ["Clear", "quiet"], ["Cancel", "quiet"], ["Use this mask", "primary"]]
      .map(([textContent, className]) => element("button", { type: "button", textContent, className }));
    const brush = element("label", { htmlFor: size.id, textContent: "Brush" });
    const eraser = element("label", { htmlFor: erase.id }, erase, " Erase");
    const stage = element("div", { className: "mask-stage" }, element("img", { src: source.src, alt: "" }), canvas);
    stage.style.setProperty("--ratio", width / height);
    const tools = element("div", { className: "mask-tools" }, brush, size, eraser, undo, clear);
    const actions = element("div", { className: "mask-tools" }, use, cancel);
    const heading = element("h2", { id: "mask-title", textContent: "Paint the mask" });
    const dialog = element("dialog", { className: "share-dialog mask-editor" }, heading, stage, tools, actions);
    dialog.setAttribute("aria-labelledby", heading.id);

    const brushSize = () => (Number(size.value) / 100) * Math.max(width, height);
    const draw = () => {
      const context = canvas.getContext("2d");
      context.globalCompositeOperation = "source-over";
      context.clearRect(0, 0, width, height);
      strokes.forEach((each) => paint(context, each, "#e500ff"));
      if (document.activeElement === canvas && !stroke) {
        context.globalCompositeOperation = "source-over";
        Object.assign(context, { strokeStyle: "#fff", lineWidth: Math.max(1, width / 400) });
        context.beginPath();
        context.arc(...cursor, brushSize() / 2, 0, 2 * Math.PI);
        context.stroke();
      }
      undo.disabled = clear.disabled = use.disabled = !strokes.length;
    };
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
    };
    const begin = (point) => { stroke = { points: [point], size: brushSize(), erase: erase.checked }; strokes.push(stroke); };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); begin(at(event)); draw(); });
    canvas.addEventListener("pointermove", (event) => { if (stroke) { stroke.points.push(at(event)); draw(); } });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { stroke = null; draw(); });
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, draw);
    canvas.addEventListener("keydown", (event) => {
      const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
      if (event.key === " ") { begin(cursor); stroke = null; } else if (!x && !y) return;
      event.preventDefault();
      cursor = [Math.min(width, Math.max(0, cursor[0] + x * STEP)), Math.min(height, Math.max(0, cursor[1] + y * STEP))];
      draw();
    });
    undo.addEventListener("click", () => { strokes.pop(); draw(); });
    clear.addEventListener("click", () => { strokes.length = 0; draw(); });
    cancel.addEventListener("click", () => dialog.close());
    use.addEventListener("click", () => {
      layer(width, height, strokes, "#fff", "#000").toBlob((blob) => {
        dialog.close();
        upload(zone, new File([blob], "mask.png", { type: "image/png" })); // of run.js
      }, "image/png");
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    draw();
  }

  const button = document.querySelector("[data-paint-mask]");
  const source = document.querySelector("#run [data-type=image]:not([name=mask])");
  if (!button || !source) return;
  const path = () => (URL.canParse(source.value) ? new URL(source.value).pathname : "");
  // An image elsewhere cannot be shown here.
  const update = () => { button.hidden = !path().startsWith("/media/"); };
  button.addEventListener("click", () => {
    const image = element("img", { src: path() });
    image.addEventListener("load", () => openEditor(image, button.closest("[data-drop]")));
  });
  source.form.addEventListener("input", update);
  update();
})();
