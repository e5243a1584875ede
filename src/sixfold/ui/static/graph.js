"use strict";
// A pane in which a graph is moved and looked at closely.
for (const pane of document.querySelectorAll("[data-pane]")) {
  const picture = pane.querySelector("img");
  let [x, y, scale] = [0, 0, 1];
  const draw = () => { picture.style.transform = `translate(${x}px, ${y}px) scale(${scale})`; };
  const closer = (by, atX = pane.clientWidth / 2, atY = pane.clientHeight / 2) => {
    const next = Math.min(8, Math.max(0.5, scale * by));
    [x, y] = [atX - ((atX - x) * next) / scale, atY - ((atY - y) * next) / scale];
    scale = next;
    draw();
  };
  pane.addEventListener("pointerdown", (event) => pane.setPointerCapture(event.pointerId));
  pane.addEventListener("pointermove", (event) => {
    if (!event.buttons) return;
    [x, y] = [x + event.movementX, y + event.movementY];
    draw();
  });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = pane.getBoundingClientRect();
    closer(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX - box.x, event.clientY - box.y);
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (step) [x, y] = [x + step[0], y + step[1]];
    else if (event.key === "+" || event.key === "-") closer(event.key === "+" ? 1.25 : 0.8);
    else if (event.key === "0") [x, y, scale] = [0, 0, 1];
    else return;
    event.preventDefault();
    draw();
  });
}
