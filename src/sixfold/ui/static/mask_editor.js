"use strict";
// Paints the mask of a form's image: white where the brush was, black elsewhere. run.js uploads the result.
(() => {
  const { element } = imageEditor;

  function paint(context, { points, size, erase }, color) {
    context.globalCompositeOperation = erase ? "destination-out" : "source-over";
    Object.assign(context, { strokeStyle: color, lineWidth: size, lineCap: "round", lineJoin: "round" });
    const [x, y] = points[0];
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + 0.01, y); // a dot, also if the pointer did not move
    points.forEach((point) => context.lineTo(...point));
    context.stroke();
    context.globalCompositeOperation = "source-over";
  }

  // The strokes in white on black.
  function maskOf(strokes, { width, height }) {
    const [white, mask] = [0, 0].map(() => element("canvas", { width, height }));
    strokes.forEach((stroke) => paint(white.getContext("2d"), stroke, "#fff"));
    const context = mask.getContext("2d");
    context.fillRect(0, 0, width, height);
    context.drawImage(white, 0, 0);
    return mask;
  }

  function build(zone) {
    const brush = element("input", { type: "range", min: 1, max: 30, value: 8, id: "mask-brush" });
    const erase = element("input", { type: "checkbox", id: "mask-erase" });
    const diameter = ({ width, height }) => (Number(brush.value) / 100) * Math.max(width, height);
    return {
      name: "mask",
      title: "Paint the mask",
      help: "Paint over the area.",
      keys: "The arrow keys move the brush, and the space key paints.",
      use: "Use this mask",
      needed: true,
      tools: [element("label", { htmlFor: brush.id, textContent: "Brush" }), brush, element("label", { htmlFor: erase.id }, erase, " Erase")],
      initial: () => [],
      radius: (size) => diameter(size) / 2,
      draw: (context, strokes) => strokes.forEach((stroke) => paint(context, stroke, "#e500ff")),
      press: (_, strokes, reach, size) => {
        const stroke = { points: [], size: diameter(size), erase: erase.checked };
        const all = [...strokes, stroke];
        return (point) => { stroke.points.push(point); return all; };
      },
      done: (strokes, size) => maskOf(strokes, size).toBlob(
        (blob) => upload(zone, new File([blob], "mask.png", { type: "image/png" })), // of run.js
        "image/png",
      ),
    };
  }

  const button = document.querySelector("[data-marks=mask]");
  if (button) imageEditor.offer(button, () => build(button.closest("[data-drop]")));
})();
