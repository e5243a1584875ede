"use strict";
// Dropping a file made by Sixfold on any page opens its form; dropping a workflow imports it.
(() => {
  const csrf = document.body.dataset.csrf ?? "";
  const told = document.getElementById("dropped");
  const chosen = document.getElementById("open-file");
  let entered = 0;

  const say = (text) => { told.hidden = !text; told.textContent = text; };
  const curtain = (up) => document.body.classList.toggle("dropping", up);
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  const taken = (event) => event.target.closest?.("[data-drop]"); // a file field of a form

  async function send(path, file) {
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    if (csrf) headers["X-CSRF-Token"] = csrf;
    const response = await fetch(path, { method: "POST", headers, body: file });
    return [response.ok, await response.json()];
  }

  async function bring(file) {
    say(`Reading ${file.name} …`);
    try {
      const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, ""));
      const [good, found] = await send(`/pages/workflows?name=${name}`, file);
      if (good) location.href = found.path;
      else say(found.error);
    } catch {
      say("The server does not respond.");
    }
  }

  async function open(file) {
    say(`Reading the metadata of ${file.name} …`);
    try {
      const [good, found] = await send("/pages/origin", file);
      if (!good) { say(found.error); return; }
      if (found.kind === "graph") { await bring(file); return; }
      sessionStorage.setItem("again", JSON.stringify({ ...found, file: file.name }));
      location.href = `/catalog/${encodeURIComponent(found.model)}`;
    } catch {
      say("The server does not respond.");
    }
  }

  addEventListener("dragenter", (event) => { if (carries(event)) { entered += 1; curtain(!taken(event)); } });
  addEventListener("dragleave", () => { entered = Math.max(0, entered - 1); if (!entered) curtain(false); });
  addEventListener("dragover", (event) => { if (carries(event) && !taken(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    entered = 0;
    curtain(false);
    if (!carries(event) || taken(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });
  for (const [input, take] of [[chosen, open], [document.querySelector("[data-bring]"), bring]]) {
    input?.addEventListener("change", () => { if (input.files[0]) take(input.files[0]); input.value = ""; });
  }
})();
