"use strict";
// The form of a model: price updates, file uploads, and progress of a run.
const form = document.getElementById("run");
const predictionBox = document.querySelector("[data-follow]");
const csrf = (form ?? predictionBox)?.dataset.csrf ?? "";
const byId = (id) => document.getElementById(id);

async function post(path, body, type = "application/json") {
  const headers = { "Content-Type": type };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  const response = await fetch(path, { method: "POST", headers, body });
  return [response.ok, await response.json()];
}

// -- inputs -----------------------------------------------------------------------------------------

function valueOf(control) {
  const type = control.dataset.type;
  if (type === "boolean") return control.checked;
  if (control.value === "") return undefined;
  if (type === "integer" || type === "number") return Number(control.value);
  return control.value;
}

function inputs() {
  const values = {};
  for (const control of form.querySelectorAll("[data-type]")) {
    const value = valueOf(control);
    if (value !== undefined) values[control.name] = value;
  }
  return values;
}

function requestBody() {
  const options = [...form.querySelectorAll("[data-option]")].map((each) => [each.dataset.option, each.value]);
  return JSON.stringify({ model: form.dataset.model, input: inputs(), ...Object.fromEntries(options.filter(([, value]) => value)) });
}

function showProblems(data) {
  for (const element of form.querySelectorAll("[data-problem]")) {
    const problem = data?.errors?.find((each) => each.input === element.dataset.problem);
    element.hidden = !problem;
    element.textContent = problem?.message ?? "";
    (byId(`in-${element.dataset.problem}`) ?? byId(`option-${element.dataset.problem}`)).toggleAttribute("aria-invalid", Boolean(problem));
  }
  form.querySelector("[aria-invalid]")?.focus();
}

// -- the price before the run -----------------------------------------------------------------------

let priceRequests = 0;
async function updatePrice() {
  const note = byId("price");
  if (!note) return;
  const number = ++priceRequests;
  const [ok, data] = await post("/pages/quote", requestBody());
  if (number !== priceRequests || !ok) return;
  for (const code of document.querySelectorAll("[data-sample]")) code.textContent = data.samples[code.dataset.sample];
  if (data.problem) { note.textContent = data.problem; return; }
  const cost = csrf ? data.cost : "free on this machine";
  note.textContent = `${cost}, ${data.took}, by ${data.engine}${data.quality === "preview" ? " (preview)" : ""}`;
}

let timer = 0;
function changed(event) {
  const control = event.target;
  if (control.dataset.slides) byId(control.dataset.slides).value = control.value;
  const slide = form.querySelector(`[data-slides="${control.id}"]`);
  if (slide) slide.value = control.value;
  if (control.closest("[data-drop]")) showFile(control);
  clearTimeout(timer);
  timer = setTimeout(updatePrice, 250);
}

// -- files ------------------------------------------------------------------------------------------

function showFile(control) {
  const box = control.closest("[data-drop]").querySelector(".file-preview");
  const tag = { image: "img", video: "video", audio: "audio" }[control.dataset.type];
  const path = URL.canParse(control.value) ? new URL(control.value).pathname : "";
  box.hidden = !(tag && path.startsWith("/media/"));
  if (box.hidden) return;
  const preview = document.createElement(tag);
  preview.src = path;
  if (tag === "img") preview.alt = "Input";
  else preview.controls = true;
  box.replaceChildren(preview);
}

async function upload(zone, file) {
  const [hint, target] = [zone.querySelector(".choose"), zone.querySelector("[data-type]")];
  hint.textContent = `Uploading ${file.name} …`;
  try {
    const [ok, data] = await post("/pages/uploads", file, file.type || "application/octet-stream");
    hint.textContent = ok ? file.name : data.error;
    if (!ok) return;
    target.value = data.url;
    target.dispatchEvent(new Event("input", { bubbles: true }));
  } catch {
    hint.textContent = "The server does not respond.";
  }
}

function dropZone(zone) {
  const over = (event) => { event.preventDefault(); zone.classList.toggle("over", event.type === "dragover"); };
  zone.addEventListener("dragover", over);
  zone.addEventListener("dragleave", over);
  zone.addEventListener("drop", (event) => {
    over(event);
    if (event.dataTransfer.files[0]) upload(zone, event.dataTransfer.files[0]);
  });
  zone.querySelector("[type=file]").addEventListener("change", (event) => {
    if (event.target.files[0]) upload(zone, event.target.files[0]);
  });
}

// -- the run ----------------------------------------------------------------------------------------

function showError(text) {
  byId("fault").hidden = !text;
  byId("fault").textContent = text;
}

function stateText(data) {
  if (data.status === "queued") return data.position ? `Queued, ${data.position} ahead` : "Queued";
  return { starting: "Starting a worker", running: "Running", canceling: "Stopping" }[data.status] ?? data.status;
}

function follow(id) {
  const [waiting, progress, log] = [byId("waiting"), byId("progress"), byId("log")];
  waiting.hidden = false;
  waiting.dataset.id = id;
  progress.removeAttribute("value");
  log.hidden = true;
  log.textContent = "";
  return new Promise((resolve) => {
    document.dispatchEvent(new CustomEvent("followed"));
    const events = new EventSource(`/pages/predictions/${id}/events`);
    events.addEventListener("node", (event) => {
      document.dispatchEvent(new CustomEvent("node", { detail: JSON.parse(event.data) })); // handled by graph.js
    });
    events.addEventListener("progress", (event) => {
      progress.value = JSON.parse(event.data).progress;
    });
    events.addEventListener("log", (event) => {
      log.hidden = false;
      log.textContent += `${JSON.parse(event.data).line}\n`;
      log.scrollTop = log.scrollHeight;
    });
    events.addEventListener("status", (event) => {
      const data = JSON.parse(event.data);
      byId("stage").textContent = stateText(data);
      byId("result").innerHTML = data.html; // rendered and escaped by the server
      if (!data.over) return;
      events.close();
      waiting.hidden = true;
      window.viewers?.show(byId("result"));
      resolve();
    });
  });
}

async function run(event) {
  event.preventDefault();
  const button = form.querySelector(".actions .primary");
  button.disabled = true;
  showError("");
  try {
    const [ok, data] = await post("/pages/run", requestBody());
    showProblems(data);
    if (ok) await follow(data.id);
    else if (!data.errors) showError(data.error);
  } catch {
    showError("The server does not respond.");
  } finally {
    button.disabled = false;
  }
}

// -- a file that was dropped ------------------------------------------------------------------------

const SIGNATURES = {
  ours: "signed by this server and unchanged", foreign: "signed by another server", broken: "changed after it was signed",
};

function fill(name, value) {
  const control = byId(`in-${name}`);
  if (!control) return;
  if (control.type === "checkbox") control.checked = value === true;
  else control.value = typeof value === "string" ? value : JSON.stringify(value);
  const slide = form.querySelector(`[data-slides="in-${name}"]`);
  if (slide) slide.value = control.value;
}

function restoreDroppedFile() {
  const file = JSON.parse(sessionStorage.getItem("dropped-file") ?? "null");
  const notice = byId("restored");
  if (!notice || file?.model !== form.dataset.model) return;
  sessionStorage.removeItem("dropped-file");
  for (const [name, value] of Object.entries(file.inputs)) fill(name, value);
  const withheld = file.withheld.length ? ` It contains only digests of the inputs ${file.withheld.join(", ")}.` : "";
  notice.textContent = `${file.file}: made by ${file.made_by}, ${SIGNATURES[file.signature]}.${withheld} `;
  if (file.prediction) {
    const link = document.createElement("a");
    link.href = `/predictions/${file.prediction}`;
    link.textContent = "Provenance and lineage";
    notice.append(link);
  }
  notice.hidden = false;
}

// -- tabs -------------------------------------------------------------------------------------------

function tabs(group) {
  const all = [...group.querySelectorAll("[role=tab]")];
  const choose = (tab) => all.forEach((each) => {
    each.setAttribute("aria-selected", String(each === tab));
    each.tabIndex = each === tab ? 0 : -1;
    byId(each.getAttribute("aria-controls")).hidden = each !== tab;
  });
  group.addEventListener("click", (event) => { if (all.includes(event.target)) choose(event.target); });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = all.indexOf(event.target);
    if (!step || at < 0) return;
    const next = all[(at + step + all.length) % all.length];
    choose(next);
    next.focus();
  });
}

document.querySelectorAll("[data-tabs]").forEach(tabs);
byId("cancel")?.addEventListener("click", () => post(`/pages/predictions/${byId("waiting").dataset.id}/cancel`, "{}"));
if (form) {
  form.addEventListener("input", changed);
  form.addEventListener("submit", run);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.querySelectorAll("[data-drop]").forEach(dropZone);
  restoreDroppedFile();
  form.querySelectorAll("[data-drop] [data-type]").forEach(showFile);
  updatePrice();
}
if (predictionBox?.dataset.follow) follow(predictionBox.dataset.follow).then(() => location.reload());
