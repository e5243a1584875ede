"use strict";
// Draws the box and places the points of a form's image. The numbers stay in the text fields of the form.
(() => {
  const { element } = imageEditor;
  const INSIDE = 1; // the third number of a point on the subject
  // Which sides of a box (left, top, right, bottom) each handle moves.
  const HANDLES = [[0, 1], [1], [2, 1], [2], [2, 3], [3], [0, 3], [0]];

  function numbersOf(field) {
    const text = field?.value.replace(/[[\]\s]/g, "") ?? "";
    const values = text.split(",").map(Number);
    return text && values.every(Number.isFinite) ? values : [];
  }

  function write(field, values) {
    field.value = values.join(", ");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  const pixels = (value, from, to, most) => Math.min(most, Math.max(0, Math.round((value / from) * to)));

  // -- the box: one mark [left, top, right, bottom] -------------------------------------------------

  function readBox(field, size) {
    const values = numbersOf(field);
    if (values.length !== 4) return [];
    const factors = [size.width / size.naturalWidth, size.height / size.naturalHeight];
    return [values.map((value, side) => value * factors[side % 2])];
  }

  function boxPixels([box], size) {
    const x = (value) => pixels(value, size.width, size.naturalWidth, size.naturalWidth);
    const y = (value) => pixels(value, size.height, size.naturalHeight, size.naturalHeight);
    const [left, right] = [x(box[0]), x(box[2])].sort((a, b) => a - b);
    const [top, bottom] = [y(box[1]), y(box[3])].sort((a, b) => a - b);
    return [left, top, right, bottom];
  }

  const handleAt = ([left, top, right, bottom], sides) => {
    const [x, y] = [sides.find((side) => side % 2 === 0), sides.find((side) => side % 2)];
    const middle = [(left + right) / 2, (top + bottom) / 2];
    return [x === undefined ? middle[0] : [left, top, right, bottom][x], y === undefined ? middle[1] : [left, top, right, bottom][y]];
  };

  function outline(context, [left, top, right, bottom], unit) {
    for (const [strokeStyle, lineWidth] of [["#000", 4 * unit], ["#fff", 2 * unit]]) {
      Object.assign(context, { strokeStyle, lineWidth });
      context.strokeRect(left, top, right - left, bottom - top);
    }
  }

  function drawBox(context, [box], unit, { width, height }) {
    if (!box) return;
    const [left, top, right, bottom] = box;
    context.fillStyle = "#000a";
    context.fillRect(0, 0, width, height);
    context.clearRect(left, top, right - left, bottom - top);
    outline(context, box, unit);
    for (const [x, y] of HANDLES.map((sides) => handleAt(box, sides))) {
      context.fillStyle = "#000";
      context.fillRect(x - 6 * unit, y - 6 * unit, 12 * unit, 12 * unit);
      context.fillStyle = "#fff";
      context.fillRect(x - 4 * unit, y - 4 * unit, 8 * unit, 8 * unit);
    }
  }

  // A new box, or a change of the one under the pointer: a handle resizes it, its inside moves it.
  function pressBox(start, marks, reach, { width, height }) {
    const [box] = marks;
    const near = ([x, y]) => Math.hypot(x - start[0], y - start[1]) <= reach;
    const sides = box && HANDLES.find((each) => near(handleAt(box, each)));
    if (sides) {
      return (point, moved) => (moved ? [box.map((value, side) => (sides.includes(side) ? point[side % 2] : value))] : marks);
    }
    const isInside = box && start[0] > Math.min(box[0], box[2]) && start[0] < Math.max(box[0], box[2])
      && start[1] > Math.min(box[1], box[3]) && start[1] < Math.max(box[1], box[3]);
    if (isInside) {
      const shift = (by, low, high, most) => Math.min(most - Math.max(low, high), Math.max(-Math.min(low, high), by));
      return ([x, y], moved) => {
        const dx = shift(x - start[0], box[0], box[2], width), dy = shift(y - start[1], box[1], box[3], height);
        return moved ? [[box[0] + dx, box[1] + dy, box[2] + dx, box[3] + dy]] : marks;
      };
    }
    return (point, moved) => (moved && point[0] !== start[0] && point[1] !== start[1] ? [[...start, ...point]] : marks);
  }

  function describeBox(marks, size) {
    if (!marks.length) return "No box yet.";
    const [left, top, right, bottom] = boxPixels(marks, size);
    return `${right - left} × ${bottom - top} pixels, from ${left}, ${top} to ${right}, ${bottom}.`;
  }

  // -- points: marks {x, y, inside} ------------------------------------------------------------------

  function readPoints(field, size) {
    const values = numbersOf(field);
    if (values.length % 3) return [];
    const factors = [size.width / size.naturalWidth, size.height / size.naturalHeight];
    return Array.from({ length: values.length / 3 }, (_, index) => {
      const [x, y, inside] = values.slice(3 * index, 3 * index + 3);
      return { x: x * factors[0], y: y * factors[1], inside: inside === INSIDE };
    });
  }

  const pointPixels = ({ x, y }, size) => [
    pixels(x, size.width, size.naturalWidth, size.naturalWidth - 1),
    pixels(y, size.height, size.naturalHeight, size.naturalHeight - 1),
  ];

  function drawPoints(context, points, unit) {
    for (const { x, y, inside } of points) {
      const bar = (dx, dy) => { context.moveTo(x - dx * unit, y - dy * unit); context.lineTo(x + dx * unit, y + dy * unit); };
      Object.assign(context, { fillStyle: inside ? "#0a6b2d" : "#b3121d", strokeStyle: "#fff", lineWidth: 2 * unit });
      context.beginPath();
      context.arc(x, y, 9 * unit, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
      context.beginPath();
      bar(4, 0);
      if (inside) bar(0, 4);
      context.stroke();
    }
  }

  // A new point, or the one under the pointer: a drag moves it, a click removes it.
  function pressPoint(start, marks, reach, inside, most) {
    const nearest = marks.findLast(({ x, y }) => Math.hypot(x - start[0], y - start[1]) <= reach);
    if (nearest) {
      return ([x, y], moved) => (moved ? marks.map((each) => (each === nearest ? { ...each, x, y } : each)) : marks.filter((each) => each !== nearest));
    }
    return ([x, y]) => (marks.length < most ? [...marks, { x, y, inside }] : marks);
  }

  function describePoints(points, most) {
    const inside = points.filter((each) => each.inside).length;
    const counts = `${inside} on the subject, ${points.length - inside} beside it`;
    return points.length < most ? `${counts}.` : `${counts}. ${most} points are the most; click a point to remove it.`;
  }

  function buildKinds() {
    const names = ["subject", "beside"];
    const [subject, beside] = names.map((id, index) => element("input", { type: "radio", name: "point-kind", id: `point-${id}`, checked: !index }));
    const label = (input, text) => element("label", { htmlFor: input.id }, input, ` ${text}`);
    const group = element("span", { className: "kinds" }, label(subject, "On the subject"), label(beside, "Beside it"));
    group.setAttribute("role", "radiogroup");
    group.setAttribute("aria-label", "Kind of the next point");
    return { group, isSubject: () => subject.checked };
  }

  // -- the editors -----------------------------------------------------------------------------------

  const fields = Object.fromEntries([...document.querySelectorAll("[data-marks=box], [data-marks=points]")]
    .map((button) => [button.dataset.marks, document.getElementById(button.dataset.fills)]));

  const editors = {
    box: (field) => ({
      name: "box",
      title: "Draw a box",
      help: "Drag across the image. Drag the box to move it, or its handles to resize it.",
      keys: "The arrow keys move the cursor (with Shift by one pixel), and the space key sets a corner.",
      use: "Use this box",
      twice: true,
      tools: [],
      initial: (size) => readBox(field, size),
      draw: (context, marks, unit, size) => {
        drawBox(context, marks, unit, size);
        drawPoints(context, readPoints(fields.points, size), unit);
      },
      press: pressBox,
      describe: describeBox,
      done: (marks, size) => write(field, marks.length ? boxPixels(marks, size) : []),
    }),
    points: (field, most) => {
      const { group, isSubject } = buildKinds();
      return {
        name: "points",
        title: "Place points",
        help: "Click on the subject, or beside it to leave something out. Drag a point to move it, click it to remove it.",
        keys: "The arrow keys move the cursor (with Shift by one pixel), and the space key clicks.",
        use: "Use these points",
        tools: [group],
        initial: (size) => readPoints(field, size),
        draw: (context, marks, unit, size) => {
          readBox(fields.box, size).forEach((box) => outline(context, box, unit));
          drawPoints(context, marks, unit);
        },
        press: (start, marks, reach) => pressPoint(start, marks, reach, isSubject(), most),
        describe: (marks) => describePoints(marks, most),
        done: (marks, size) => write(field, marks.flatMap((each) => [...pointPixels(each, size), Number(each.inside)])),
      };
    },
  };

  for (const [name, field] of Object.entries(fields)) {
    const button = document.querySelector(`[data-marks=${name}]`);
    imageEditor.offer(button, () => editors[name](field, Math.floor(Number(button.dataset.maxItems) / 3)));
  }
})();
