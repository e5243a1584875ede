"use strict";
// Cards with the beginning of a page, at links to it: for a pointer that rests on one, and for the focus.
(() => {
  const LINKS = ".prose a.wiki[href], .leads a[href]:not(.missing-page), .snippet a[href^='/memory/']", DELAY = 350, LEAVE = 200;
  const card = Object.assign(document.createElement("div"), { className: "page-card", id: "page-card", hidden: true });
  card.setAttribute("role", "tooltip");
  document.body.append(card);
  const texts = new Map();
  let link = null, timer = 0;

  async function read(path) {
    if (!texts.has(path)) {
      const response = await fetch(`${path}/~card`);
      if (!response.ok) throw new Error(response.status);
      texts.set(path, await response.text());
    }
    return texts.get(path);
  }

  async function show(target) {
    try {
      const text = await read(new URL(target.href).pathname);
      if (target !== link) return;
      card.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
    } catch { return; }
    card.hidden = false;
    target.setAttribute("aria-describedby", card.id);
    const box = target.getBoundingClientRect(), margin = 8;
    const fits = box.bottom + card.offsetHeight + margin < innerHeight;
    const left = Math.min(box.left, document.documentElement.clientWidth - card.offsetWidth - margin);
    card.style.left = `${Math.max(margin, left) + scrollX}px`;
    card.style.top = `${(fits ? box.bottom + 4 : box.top - card.offsetHeight - 4) + scrollY}px`;
  }

  function hide() {
    clearTimeout(timer);
    link?.removeAttribute("aria-describedby");
    link = null;
    card.hidden = true;
  }

  function open(target, delay) {
    clearTimeout(timer);
    if (target === link) return;
    hide();
    link = target;
    timer = setTimeout(show, delay, target);
  }

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const target = event.target.closest?.(LINKS);
    if (target) open(target, DELAY);
    else if (event.target.closest?.("#page-card")) clearTimeout(timer);
    else if (link && document.activeElement !== link) { clearTimeout(timer); timer = setTimeout(hide, LEAVE); }
  });
  document.addEventListener("focusin", (event) => {
    const target = event.target.closest(LINKS);
    if (target?.matches(":focus-visible")) open(target, 0);
    else if (link) hide();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && link) hide(); });
})();
