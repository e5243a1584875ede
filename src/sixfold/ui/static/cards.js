"use strict";
// Example cards: videos play while the card is hovered or focused, audio plays on click.
(() => {
  // A link to a section of the page closes the text that contains it.
  for (const link of document.querySelectorAll("[popover] a[href^='#']")) link.addEventListener("click", () => link.closest(":popover-open")?.hidePopover());

  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  function prepareVideo(video) {
    const card = video.closest(".card");
    const play = () => { if (!reducedMotion.matches) video.play().then(() => video.classList.add("on")).catch(() => {}); };
    const stopVideo = () => { video.classList.remove("on"); video.pause(); };
    for (const type of ["pointerenter", "focusin"]) card.addEventListener(type, play);
    for (const type of ["pointerleave", "focusout"]) card.addEventListener(type, stopVideo);
  }

  const player = new Audio();
  let playing = null;
  const stopAudio = () => { playing?.setAttribute("aria-pressed", "false"); playing = null; player.pause(); };
  player.addEventListener("ended", stopAudio);
  function prepareAudio(button) {
    button.addEventListener("click", () => {
      if (playing === button) { stopAudio(); return; }
      stopAudio();
      playing = button;
      button.setAttribute("aria-pressed", "true");
      player.src = button.dataset.audio;
      player.play().catch(stopAudio);
    });
  }

  // Used by catalog.js for cards that it loads.
  function prepare(container) {
    container.querySelectorAll("[data-preview]").forEach(prepareVideo);
    container.querySelectorAll("[data-audio]").forEach(prepareAudio);
  }
  window.cards = { prepare };
  prepare(document);
})();
