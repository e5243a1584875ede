"use strict";
// Marks the image of a form in a dialog. mask_editor.js and region_editor.js define what a mark is.
//
// An editor is an object: `title`, `help`, `keys`, `use` (texts), `tools` (controls), `initial(size)` (marks),
// `draw(context, marks, unit, size)`, `press(point, marks, reach, size)` and `done(marks, size)`.
// `press` returns a gesture: a function of the position of the pointer, and of whether it moved, that returns the
// new marks. `unit` is the length of a CSS pixel on the canvas. With `needed`, an empty list of marks cannot be
// used; with `twice`, the space key begins a gesture and ends it.
const imageEditor = (() => {
  const MAX_SIDE = 2048; // pixels of the canvas; larger images are scaled down
  const STEP = 0.01; // part of the longer side that an arrow key moves the cursor
  const [REACH, TOUCH_REACH] = [12, 24]; // CSS pixels around a mark that still touch it
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function element(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  function buildDialog(image, editor, width, height) {
    const canvas = element("canvas", { width, height, tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "The image");
    canvas.setAttribute("aria-describedby", "editor-help");
    const stage = element("div", { className: "editor-stage" }, element("img", { src: image.src, alt: "" }), canvas);
    stage.style.setProperty("--ratio", width / height);
    const button = (textContent, className = "quiet") => element("button", { type: "button", textContent, className });
    const [undo, clear, use, cancel] = [button("Undo"), button("Clear"), button(editor.use, "primary"), button("Cancel")];
    const note = element("p", { className: "note" });
    note.setAttribute("role", "status");
    const heading = element("h2", { id: "editor-title", textContent: editor.title });
    const dialog = element("dialog", { className: `share-dialog image-editor ${editor.name}` }, heading,
      element("p", { className: "note", id: "editor-help" }, editor.help, element("span", { className: "keys", textContent: ` ${editor.keys}` })), stage, note,
      element("div", { className: "editor-tools" }, ...editor.tools, undo, clear),
      element("div", { className: "editor-tools" }, use, cancel));
    dialog.setAttribute("aria-labelledby", heading.id);
    return { dialog, canvas, note, undo, clear, use, cancel };
  }

  // The cursor of the keyboard: a cross, or the circle of a brush.
  function drawCursor(context, [x, y], unit, radius) {
    for (const [strokeStyle, lineWidth] of [["#000", 4 * unit], ["#fff", 2 * unit]]) {
      Object.assign(context, { strokeStyle, lineWidth });
      context.beginPath();
      if (radius) context.arc(x, y, radius, 0, 2 * Math.PI);
      else for (const [dx, dy] of [[10, 0], [0, 10]]) { context.moveTo(x - dx * unit, y - dy * unit); context.lineTo(x + dx * unit, y + dy * unit); }
      context.stroke();
    }
  }

  function open(image, editor) {
    if (document.querySelector(".image-editor")) return; // the button was clicked again while the image loaded
    const scale = Math.min(1, MAX_SIDE / Math.max(image.naturalWidth, image.naturalHeight));
    const [width, height] = [image.naturalWidth, image.naturalHeight].map((side) => Math.max(1, Math.round(side * scale)));
    const size = { width, height, naturalWidth: image.naturalWidth, naturalHeight: image.naturalHeight };
    const initial = editor.initial(size);
    const states = [initial];
    let [gesture, shown, moved, start] = [null, initial, false, null];
    let cursor = [Math.round(width / 2), Math.round(height / 2)];
    const { dialog, canvas, note, undo, clear, use, cancel } = buildDialog(image, editor, width, height);

    const unit = () => width / (canvas.getBoundingClientRect().width || width);
    const draw = () => {
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, width, height);
      editor.draw(context, shown, unit(), size);
      if (document.activeElement === canvas && !start) drawCursor(context, cursor, unit(), editor.radius?.(size));
      undo.disabled = states.length < 2 && !gesture;
      clear.disabled = !shown.length;
      use.disabled = !shown.length && (editor.needed || !initial.length);
      note.textContent = editor.describe?.(shown, size) ?? "";
    };
    const show = (marks) => { shown = marks; draw(); };
    const commit = (marks) => {
      if (marks !== states.at(-1)) states.push(marks);
      [gesture, start] = [null, null];
      show(marks);
    };
    const discard = () => { [gesture, start] = [null, null]; show(states.at(-1)); };
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const limit = (share, most) => Math.min(most, Math.max(0, share * most));
      return [limit((event.clientX - box.left) / box.width, width), limit((event.clientY - box.top) / box.height, height)];
    };
    const begin = (point, reach) => { gesture = editor.press(point, states.at(-1), reach * unit(), size); show(gesture(point, false)); };

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || start) return; // a second finger or button marks nothing
      canvas.setPointerCapture(event.pointerId);
      [start, moved] = [{ id: event.pointerId, x: event.clientX, y: event.clientY }, false];
      begin(at(event), event.pointerType === "touch" ? TOUCH_REACH : REACH);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (start?.id !== event.pointerId) return;
      moved ||= Math.hypot(event.clientX - start.x, event.clientY - start.y) > 3;
      show(gesture(at(event), moved));
    });
    canvas.addEventListener("pointerup", (event) => { if (start?.id === event.pointerId) commit(gesture(at(event), moved)); });
    canvas.addEventListener("pointercancel", (event) => { if (start?.id === event.pointerId) discard(); });
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, draw);
    canvas.addEventListener("keydown", (event) => {
      const arrow = ARROWS[event.key];
      if (start || (event.key !== " " && !arrow)) return;
      event.preventDefault();
      if (arrow) {
        const step = event.shiftKey ? 1 : Math.max(1, Math.round(STEP * Math.max(width, height)));
        cursor = cursor.map((value, axis) => Math.min(axis ? height : width, Math.max(0, value + arrow[axis] * step)));
        if (gesture) show(gesture(cursor, true));
        else draw();
      } else if (gesture) commit(gesture(cursor, true));
      else {
        begin(cursor, REACH);
        if (!editor.twice) commit(gesture(cursor, false));
      }
    });
    undo.addEventListener("click", () => { if (!gesture) states.pop(); discard(); if (undo.disabled) canvas.focus(); });
    clear.addEventListener("click", () => { commit([]); canvas.focus(); });
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || undo.disabled) return;
      event.preventDefault();
      undo.click();
    });
    cancel.addEventListener("click", () => dialog.close());
    use.addEventListener("click", () => { dialog.close(); editor.done(shown, size); });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    new ResizeObserver(draw).observe(canvas);
    canvas.focus();
  }

  // Shows the button while an image of this server is chosen, and opens the editor on it.
  function offer(button, build) {
    const source = document.querySelector("#run [data-type=image]:not([name=mask])");
    if (!source) return;
    const path = () => (URL.canParse(source.value) ? new URL(source.value).pathname : "");
    const update = () => { button.hidden = !path().startsWith("/media/"); };
    button.addEventListener("click", () => {
      const image = element("img", { src: path() });
      image.addEventListener("load", () => open(image, build()));
      image.addEventListener("error", () => {
        showProblems({ errors: [{ input: source.name, message: "Your browser cannot show this image. Convert it to PNG or JPEG to mark it." }] });
      });
    });
    source.form.addEventListener("input", update);
    update();
  }

  return { element, offer };
})();
