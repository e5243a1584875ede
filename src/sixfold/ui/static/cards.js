"use strict";
// Example cards: videos play while the card is hovered or focused, audio plays on click.
(() => {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  for (const reel of document.querySelectorAll("[data-reel]")) {
    const card = reel.closest(".card");
    const begin = () => { if (!still.matches) reel.play().then(() => reel.classList.add("on")).catch(() => {}); };
    const end = () => { reel.classList.remove("on"); reel.pause(); };
    for (const type of ["pointerenter", "focusin"]) card.addEventListener(type, begin);
    for (const type of ["pointerleave", "focusout"]) card.addEventListener(type, end);
  }

  const player = new Audio();
  let playing = null;
  const stop = () => { playing?.setAttribute("aria-pressed", "false"); playing = null; player.pause(); };
  player.addEventListener("ended", stop);
  for (const button of document.querySelectorAll("[data-tune]")) {
    button.addEventListener("click", () => {
      if (playing === button) { stop(); return; }
      stop();
      playing = button;
      button.setAttribute("aria-pressed", "true");
      player.src = button.dataset.tune;
      player.play().catch(stop);
    });
  }
})();
