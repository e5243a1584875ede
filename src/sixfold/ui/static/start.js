"use strict";
// The form of the start page: it starts a run, and the page of the model shows its progress and result.
const form = document.getElementById("generate");

async function generate(event) {
  event.preventDefault();
  const [button, note] = [form.querySelector("button"), document.getElementById("note")];
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": form.dataset.csrf };
  const model = form.model.value;
  button.disabled = true;
  note.textContent = "Sending …";
  const body = JSON.stringify({ model, input: { prompt: form.prompt.value } });
  const { ok, data } = await connection.request("/pages/run", { method: "POST", headers, body });
  button.disabled = false;
  if (ok) location.assign(`/catalog/${encodeURIComponent(model)}?run=${data.id}`);
  else connection.show(note, data, data.retry && { title: "Try again", act: () => form.requestSubmit() });
}

form?.addEventListener("submit", generate);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-prompt]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  form.prompt.value = link.textContent;
  form.prompt.focus();
});
