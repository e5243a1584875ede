"use strict";
// Reload the operator's page every few seconds while it is visible.
const EVERY = 3000;

async function look() {
  const place = document.querySelector("[data-live]");
  if (!place || document.hidden || place.contains(document.activeElement) || place.querySelector("details[open]")) return;
  const response = await fetch(location.href);
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("[data-live]");
  if (fresh && fresh.innerHTML !== place.innerHTML) place.replaceWith(fresh);
}

if (document.querySelector("[data-live]")) setInterval(() => look().catch(() => {}), EVERY);
