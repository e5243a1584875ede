"use strict";
// The form of the start page: one request, then the image and its receipt.
const form = document.getElementById("generate");
const byId = (id) => document.getElementById(id);

function stepItem(step) {
  const item = document.createElement("li");
  item.className = step.at ? "reached" : "ahead";
  for (const [name, text] of [["name", step.name], ["time", step.at ? step.took : "–"], ["money", step.usd ?? ""]]) {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    item.append(span);
  }
  return item;
}

function show(result, prompt) {
  byId("frame").replaceChildren(...result.images.map((url) => {
    const image = new Image();
    image.src = url;
    image.alt = prompt;
    return image;
  }));
  const receipt = byId("receipt");
  receipt.classList.remove("fresh");
  receipt.replaceChildren(...result.receipt.map(stepItem));
  void receipt.offsetWidth;
  receipt.classList.add("fresh");
  const link = document.createElement("a");
  link.href = `/predictions/${result.id}`;
  link.textContent = "provenance and lineage";
  byId("maker").replaceChildren(`${result.engine}, quality ${result.quality}: `, link);
  byId("result").hidden = false;
}

async function generate(event) {
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
    const result = await response.json();
    if (!response.ok) note.textContent = result.error;
    else if (result.status === "succeeded") { show(result, form.prompt.value); note.textContent = "Done."; }
    else note.textContent = result.error ?? `Status: ${result.status}.`;
  } catch {
    note.textContent = "The server does not respond.";
  } finally {
    button.disabled = false;
  }
}

form?.addEventListener("submit", generate);
