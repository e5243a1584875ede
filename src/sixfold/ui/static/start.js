"use strict";
// The form of the start page: one request, then the image and its receipt.
const form = document.getElementById("generate");
const byId = (id) => document.getElementById(id);

function stepItem(step) {
  const item = document.createElement("li");
  item.className = step.at ? "reached" : "ahead";
  for (const [name, text] of [["name", step.name === "captured" ? "charged" : step.name], ["time", step.at ? step.took : "–"], ["money", step.usd ?? ""]]) {
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
  const body = JSON.stringify({ prompt: form.prompt.value, model: form.model.value });
  const { ok, data } = await connection.request("/pages/make", { method: "POST", headers, body });
  button.disabled = false;
  if (!ok) connection.show(note, data, data.retry && { title: "Try again", act: () => form.requestSubmit() });
  else if (data.status === "succeeded") { show(data, form.prompt.value); note.textContent = "Done."; }
  else note.textContent = data.error ?? `Status: ${data.status}.`;
}

form?.addEventListener("submit", generate);
