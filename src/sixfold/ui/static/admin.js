"use strict";
// Reload the operator's page every few seconds while it is visible.
const EVERY = 3000;

async function reload() {
  const current = document.querySelector("[data-live]");
  if (!current || document.hidden || current.contains(document.activeElement) || current.querySelector("details[open]")) return;
  const response = await fetch(location.href);
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("[data-live]");
  // The chat page has a composer instead as soon as there is a model.
  if (!fresh) location.reload();
  else if (fresh.innerHTML !== current.innerHTML) current.replaceWith(fresh);
}

if (document.querySelector("[data-live]")) setInterval(() => reload().catch(() => {}), EVERY);

// A page that answers a form gets the address of what it shows, so that a reload does not send the form again.
const address = document.querySelector("[data-address]")?.dataset.address;
if (address) history.replaceState(null, "", address);
