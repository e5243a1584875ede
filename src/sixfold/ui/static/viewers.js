"use strict";
// Waveforms of audio, 3D models (model_viewer.js), and comparisons of an image with its source.
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

  function show(container) {
    container.querySelectorAll("[data-before]").forEach((link) => compare(link).catch(() => {}));
    container.querySelectorAll("[data-wave]").forEach((canvas) => drawWaveform(canvas).catch(() => { canvas.hidden = true; }));
    container.querySelectorAll("[data-glb]").forEach((canvas) => window.modelViewer(canvas).catch(() => { canvas.hidden = true; }));
  }

  show(document);
  return { show };
})();
