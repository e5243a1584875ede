"use strict";
// The history: keys, older runs while scrolling, and results of runs that are under way.
(() => {
  const wall = document.getElementById("wall");
  const runs = () => [...document.querySelectorAll(".runs .run")];
  const isTyping = (event) => event.target.matches("input:not([type=checkbox]), select, textarea") || event.ctrlKey || event.metaKey || event.altKey;

  // A 3D model of which the server cannot draw a picture has a mark instead.
  function mark(image) {
    if (!image.dataset?.mark) return;
    const glyph = Object.assign(document.createElement("span"), { className: "glyph", textContent: image.dataset.mark });
    glyph.setAttribute("aria-hidden", "true");
    image.replaceWith(glyph);
  }
  document.addEventListener("error", (event) => mark(event.target), true);
  for (const image of document.querySelectorAll("img[data-mark]")) if (image.complete && !image.naturalWidth) mark(image);

  function move(step) {
    const all = runs();
    const at = all.findIndex((run) => run.contains(document.activeElement));
    const next = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + step))];
    next?.querySelector(".open").focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "x") document.activeElement.closest(".run")?.querySelector(".pick-run")?.click();
    else if (event.key === "/") document.getElementById("q").focus();
    else return;
    event.preventDefault();
  });

  async function load(url) {
    try {
      const response = await fetch(url);
      if (!response.ok) throw new Error(String(response.status));
      return new DOMParser().parseFromString(await response.text(), "text/html");
    } catch (error) {
      connection.check(); // shows the line at the top if the server cannot be reached
      throw error;
    }
  }

  // Appends the days of the next page; a day that continues keeps its heading.
  async function older(link) {
    if (link.dataset.loading) return;
    link.dataset.loading = "1";
    const page = await load(link.href);
    for (const day of page.querySelectorAll(".day")) {
      const same = wall.querySelector(`[data-day="${day.dataset.day}"] .runs`);
      if (same) same.append(...day.querySelectorAll(".run"));
      else wall.querySelector(".picks").before(day);
    }
    link.parentElement.replaceWith(...page.querySelectorAll(".older"));
    watch();
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) older(entry.target).catch(() => { delete entry.target.dataset.loading; });
  }, { rootMargin: "600px" });
  // A search that found nothing in many runs continues only when the user asks for it.
  const watch = () => { const link = document.querySelector(".older a"); if (wall && link && !link.parentElement.querySelector(".note")) seen.observe(link); };
  watch();

  const REFRESH_MS = 4000;
  let timer = 0;
  async function refresh() {
    clearTimeout(timer);
    const waiting = document.querySelectorAll(".run.unfinished");
    if (!waiting.length) return;
    if (!document.hidden) {
      const page = await load(location.href).catch(() => null);
      for (const run of page ? waiting : []) {
        const now = page.getElementById(run.id);
        if (now && !now.classList.contains("unfinished") && !run.contains(document.activeElement)) run.replaceWith(now);
      }
    }
    timer = setTimeout(refresh, REFRESH_MS);
  }
  timer = setTimeout(refresh, REFRESH_MS);
  // What was missed while the connection was lost is loaded at once.
  document.addEventListener("connection-back", () => {
    const link = document.querySelector(".older a");
    if (link) seen.unobserve(link);
    watch();
    refresh();
  });
})();
