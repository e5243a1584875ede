"use strict";
// Waveforms of audio, 3D models (model_viewer.js), comparisons of an image with its source, values of vectors and charts, and transcripts.
window.viewers = (() => {
  async function drawWaveform(canvas) {
    const data = await (await fetch(canvas.dataset.wave)).arrayBuffer();
    const audio = await new OfflineAudioContext(1, 1, 8000).decodeAudioData(data);
    const samples = audio.getChannelData(0);
    const context = canvas.getContext("2d");
    const { width, height } = canvas;
    const step = samples.length / width;
    context.fillStyle = getComputedStyle(canvas).color;
    for (let x = 0; x < width; x += 3) {
      let peak = 0;
      for (let at = Math.floor(x * step); at < (x + 3) * step; at += 1) peak = Math.max(peak, Math.abs(samples[at] ?? 0));
      const barHeight = Math.max(1, peak * (height - 4));
      context.fillRect(x, (height - barHeight) / 2, 2, barHeight);
    }
    const player = canvas.parentElement.querySelector("audio");
    canvas.addEventListener("click", (event) => {
      player.currentTime = (event.offsetX / canvas.clientWidth) * player.duration;
      player.play();
    });
  }

  // A slider between an image and the image that it was made from, if both have the same shape.
  async function compare(link) {
    const after = link.querySelector("img");
    const before = new Image();
    before.src = link.dataset.before;
    before.alt = "";
    before.className = "before";
    await Promise.all([before.decode(), after.decode()]);
    const ratio = (image) => image.naturalWidth / image.naturalHeight;
    if (Math.abs(ratio(before) / ratio(after) - 1) > 0.02) return;
    const slider = document.createElement("input");
    slider.type = "range";
    slider.value = "50";
    slider.setAttribute("aria-label", "Before and after");
    const box = document.createElement("div");
    box.className = "compare";
    slider.addEventListener("input", () => box.style.setProperty("--at", `${slider.value}%`));
    link.replaceWith(box);
    box.append(after, before, slider);
  }

  // The value under the pointer, or at the position of a slider that the keyboard moves.
  function probe(strip) {
    const values = JSON.parse(strip.dataset.strip);
    const [perCell, dimensions] = [Number(strip.dataset.perCell), Number(strip.dataset.dimensions)];
    const text = (cell) => {
      const [first, last] = [cell * perCell + 1, Math.min((cell + 1) * perCell, dimensions)];
      return first === last ? `dimension ${first}: ${values[cell]}` : `dimensions ${first} to ${last}: ${values[cell]} (the largest)`;
    };
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: "0", max: String(values.length - 1), value: "0" });
    slider.setAttribute("aria-label", `Values of ${strip.dataset.name}`);
    const line = strip.parentElement.querySelector("[data-value]");
    const look = (cell) => {
      line.textContent = text(cell);
      cursor.setAttribute("d", `M${cell} 0h1v1h-1z`);
    };
    const leave = () => { line.textContent = ""; cursor.removeAttribute("d"); };
    const choose = () => { slider.setAttribute("aria-valuetext", text(slider.valueAsNumber)); look(slider.valueAsNumber); };
    slider.setAttribute("aria-valuetext", text(0));
    slider.addEventListener("input", choose);
    slider.addEventListener("focus", choose);
    slider.addEventListener("blur", leave);
    slider.addEventListener("pointermove", (event) => {
      const { left, width } = strip.getBoundingClientRect();
      look(Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * values.length))));
    });
    slider.addEventListener("pointerleave", () => { if (document.activeElement === slider) choose(); else leave(); });
    strip.querySelector("svg").append(cursor);
    strip.append(slider);
  }

  // The row of a chart's table under the pointer, or at the position of a slider that the keyboard moves.
  function readChart(figure) {
    const area = figure.querySelector(".area"), plot = area.querySelector("svg"), line = figure.querySelector("[data-value]");
    const names = [...figure.querySelectorAll("thead th")].slice(1).map((each) => each.textContent);
    const rows = [...figure.querySelectorAll("tbody tr")];
    const text = (row) => {
      const cells = [...row.cells].map((each) => each.textContent);
      return `${cells[0]}: ${names.map((name, at) => cells[at + 1] && `${name.toLowerCase()} ${cells[at + 1]}`).filter(Boolean).join(", ") || "no value"}`;
    };
    const part = (name, attributes) => {
      const created = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
      return created;
    };
    const look = (row) => {
      leave();
      line.textContent = text(row);
      const x = `${row.dataset.x}%`;
      plot.append(part("line", { class: "cursor", x1: x, x2: x, y2: "100%" }));
      if (row.dataset.y) plot.append(part("circle", { cx: x, cy: `${row.dataset.y}%`, r: 5 }));
    };
    const leave = () => {
      plot.querySelectorAll(".cursor, circle").forEach((each) => each.remove());
      line.textContent = "Point at the chart, or press the arrow keys on it, to read a value.";
    };
    const slider = document.createElement("input");
    const start = Math.max(0, rows.findLastIndex((row) => row.cells[1].textContent));
    Object.assign(slider, { type: "range", min: "0", max: String(rows.length - 1), value: String(start) });
    slider.setAttribute("aria-label", "Values of the chart");
    const choose = () => { slider.setAttribute("aria-valuetext", text(rows[slider.valueAsNumber])); look(rows[slider.valueAsNumber]); };
    slider.setAttribute("aria-valuetext", text(rows[start]));
    slider.addEventListener("input", choose);
    slider.addEventListener("focus", choose);
    slider.addEventListener("blur", leave);
    slider.addEventListener("pointermove", ({ clientX }) => {
      const { left, width } = area.getBoundingClientRect(), at = ((clientX - left) / width) * 100;
      look(rows.reduce((best, row) => (Math.abs(row.dataset.x - at) < Math.abs(best.dataset.x - at) ? row : best)));
    });
    slider.addEventListener("pointerleave", () => { if (document.activeElement === slider) choose(); else leave(); });
    area.append(slider);
    leave();
  }

  // Segments of a transcript lead to their place in the recording, which marks the one that it plays.
  function follow(transcript) {
    const player = transcript.querySelector("audio, video");
    const list = transcript.querySelector("ol");
    const buttons = [...transcript.querySelectorAll("[data-start]")];
    let current = null;
    const mark = () => {
      const time = player.currentTime + 0.01;
      const next = buttons.findLast((each) => Number(each.dataset.start) <= time && time < Number(each.dataset.end)) ?? null;
      if (next === current) return;
      current?.removeAttribute("aria-current");
      next?.setAttribute("aria-current", "true");
      current = next;
      if (!next || next === document.activeElement) return;
      const [box, line] = [list.getBoundingClientRect(), next.getBoundingClientRect()];
      if (line.top < box.top || line.bottom > box.bottom) list.scrollTop += line.top - box.top - (box.height - line.height) / 2;
    };
    list.addEventListener("click", (event) => {
      const button = event.target.closest("[data-start]");
      if (!button) return;
      player.currentTime = Number(button.dataset.start);
      player.play().catch(() => {}); // a file that cannot be played has a message in its player
    });
    if (!player) return;
    for (const name of ["timeupdate", "seeking", "seeked"]) player.addEventListener(name, mark);
    player.addEventListener("ended", () => { current?.removeAttribute("aria-current"); current = null; });
  }

  // A 3D model that cannot be drawn has a mark, above the link to its file.
  function showMark(canvas) {
    const mark = Object.assign(document.createElement("div"), { className: "model3d undrawn", textContent: "3D" });
    mark.title = "This 3D model cannot be drawn here";
    canvas.replaceWith(mark);
  }

  function show(container) {
    container.querySelectorAll("[data-before]").forEach((link) => compare(link).catch(() => {}));
    container.querySelectorAll("[data-strip]").forEach(probe);
    container.querySelectorAll("[data-chart]").forEach(readChart);
    container.querySelectorAll("[data-transcript]").forEach(follow);
    container.querySelectorAll("[data-wave]").forEach((canvas) => drawWaveform(canvas).catch(() => { canvas.hidden = true; }));
    container.querySelectorAll("[data-glb]").forEach((canvas) => window.modelViewer(canvas).catch(() => showMark(canvas)));
  }

  show(document);
  return { show };
})();
