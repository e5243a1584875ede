"use strict";
// Waveforms of audio, and 3D models (model_viewer.js).
window.viewers = (() => {
  async function wave(canvas) {
    const data = await (await fetch(canvas.dataset.wave)).arrayBuffer();
    const sound = await new OfflineAudioContext(1, 1, 8000).decodeAudioData(data);
    const samples = sound.getChannelData(0);
    const pen = canvas.getContext("2d");
    const { width, height } = canvas;
    const step = samples.length / width;
    pen.fillStyle = getComputedStyle(canvas).color;
    for (let x = 0; x < width; x += 3) {
      let peak = 0;
      for (let at = Math.floor(x * step); at < (x + 3) * step; at += 1) peak = Math.max(peak, Math.abs(samples[at] ?? 0));
      const tall = Math.max(1, peak * (height - 4));
      pen.fillRect(x, (height - tall) / 2, 2, tall);
    }
    const player = canvas.parentElement.querySelector("audio");
    canvas.addEventListener("click", (event) => {
      player.currentTime = (event.offsetX / canvas.clientWidth) * player.duration;
      player.play();
    });
  }

  function show(place) {
    place.querySelectorAll("[data-wave]").forEach((canvas) => wave(canvas).catch(() => { canvas.hidden = true; }));
    place.querySelectorAll("[data-thing]").forEach((canvas) => window.thing(canvas).catch(() => { canvas.hidden = true; }));
  }

  show(document);
  return { show };
})();
