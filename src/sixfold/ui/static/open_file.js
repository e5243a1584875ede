"use strict";
// Dropping a file made by Sixfold on any page opens its form; dropping a workflow imports it.
(() => {
  const csrf = document.body.dataset.csrf ?? "";
  const status = document.getElementById("dropped");
  const fileInput = document.getElementById("open-file");
  let enteredElements = 0;

  const show = (text) => { status.hidden = !text; status.textContent = text; };
  const highlight = (up) => document.body.classList.toggle("dropping", up);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const isFileField = (event) => event.target.closest?.("[data-drop]"); // a file field of a form

  async function send(path, file) {
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    if (csrf) headers["X-CSRF-Token"] = csrf;
    const response = await fetch(path, { method: "POST", headers, body: file });
    return [response.ok, await response.json()];
  }

  async function importWorkflow(file) {
    show(`Reading ${file.name} …`);
    try {
      const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, ""));
      const [ok, data] = await send(`/pages/workflows?name=${name}`, file);
      if (ok) location.href = data.path;
      else show(data.error);
    } catch {
      show("The server does not respond.");
    }
  }

  async function restoreForm(file) {
    show(`Reading the metadata of ${file.name} …`);
    try {
      const [ok, data] = await send("/pages/origin", file);
      if (!ok) { show(data.error); return; }
      if (data.kind === "graph") { await importWorkflow(file); return; }
      sessionStorage.setItem("dropped-file", JSON.stringify({ ...data, file: file.name }));
      location.href = `/catalog/${encodeURIComponent(data.model)}`;
    } catch {
      show("The server does not respond.");
    }
  }

  addEventListener("dragenter", (event) => { if (hasFiles(event)) { enteredElements += 1; highlight(!isFileField(event)); } });
  addEventListener("dragleave", () => { enteredElements = Math.max(0, enteredElements - 1); if (!enteredElements) highlight(false); });
  addEventListener("dragover", (event) => { if (hasFiles(event) && !isFileField(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    enteredElements = 0;
    highlight(false);
    if (!hasFiles(event) || isFileField(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files[0]) restoreForm(event.dataTransfer.files[0]);
  });
  for (const [input, handle] of [[fileInput, restoreForm], [document.querySelector("[data-import]"), importWorkflow]]) {
    input?.addEventListener("change", () => { if (input.files[0]) handle(input.files[0]); input.value = ""; });
  }
})();
