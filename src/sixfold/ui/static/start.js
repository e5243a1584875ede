"use strict";
// The form of the start page: one request, then the image and its receipt.
const form = document.getElementById("make");
const byId = (id) => document.getElementById(id);

function station(entry) {
  const item = document.createElement("li");
  item.className = entry.at ? "reached" : "ahead";
  for (const [name, text] of [["name", entry.name], ["time", entry.at ? entry.took : "–"], ["money", entry.usd ?? ""]]) {
    const part = document.createElement("span");
    part.className = name;
    part.textContent = text;
    item.append(part);
  }
  return item;
}

function show(made, prompt) {
  byId("frame").replaceChildren(...made.images.map((url) => {
    const image = new Image();
    image.src = url;
    image.alt = prompt;
    return image;
  }));
  const receipt = byId("receipt");
  receipt.classList.remove("fresh");
  receipt.replaceChildren(...made.receipt.map(station));
  void receipt.offsetWidth;
  receipt.classList.add("fresh");
  const link = document.createElement("a");
  link.href = `/predictions/${made.id}`;
  link.textContent = "provenance and lineage";
  byId("maker").replaceChildren(`${made.engine}, quality ${made.quality}: `, link);
  byId("result").hidden = false;
}

async function make(event) {
  event.preventDefault();
  const button = form.querySelector("button");
  const note = byId("note");
  const headers = { "Content-Type": "application/json" };
  if (form.dataset.csrf) headers["X-CSRF-Token"] = form.dataset.csrf;
  button.disabled = true;
  note.textContent = "Running …";
  try {
    const body = JSON.stringify({ prompt: form.prompt.value, model: form.model.value });
    const response = await fetch("/pages/make", { method: "POST", headers, body });
    const made = await response.json();
    if (!response.ok) note.textContent = made.error;
    else if (made.status === "succeeded") { show(made, form.prompt.value); note.textContent = "Done."; }
    else note.textContent = made.error ?? `Status: ${made.status}.`;
  } catch {
    note.textContent = "The server does not respond.";
  } finally {
    button.disabled = false;
  }
}

form?.addEventListener("submit", make);
