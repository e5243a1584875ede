"use strict";
// Dropping a file made by Sixfold on any page opens its form; dropping a workflow imports it.
(() => {
  const csrf = document.body.dataset.csrf ?? "";
  const status = document.getElementById("dropped");
  const fileInput = document.getElementById("open-file");
  let enteredElements = 0;

  const show = (text) => connection.show(status, { error: text });
  const chooseAnother = { title: "Choose another file", act: () => fileInput.click() };
  const fail = (data, again) => connection.show(status, data, data.retry ? { title: "Try again", act: again } : !data.action && chooseAnother, { title: "Close", act: () => show("") });
  const highlight = (up) => document.body.classList.toggle("dropping", up);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const isFileField = (event) => event.target.closest?.("[data-drop]"); // a file field of a form

  async function send(path, file) {
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    if (csrf) headers["X-CSRF-Token"] = csrf;
    return connection.request(path, { method: "POST", headers, body: file });
  }

  async function importWorkflow(file) {
    show(`Reading ${file.name} …`);
    const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, ""));
    const { ok, data } = await send(`/pages/workflows?name=${name}`, file);
    if (ok) location.href = data.path;
    else fail(data, () => importWorkflow(file));
  }

  async function restoreForm(file) {
    show(`Reading the metadata of ${file.name} …`);
    const { ok, data } = await send("/pages/origin", file);
    if (!ok) { fail(data, () => restoreForm(file)); return; }
    if (data.kind === "graph") { await importWorkflow(file); return; }
    sessionStorage.setItem("dropped-file", JSON.stringify({ ...data, file: file.name }));
    location.href = `/catalog/${encodeURIComponent(data.model)}`;
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
