"use strict";
// The form of a model: price updates, file uploads, and progress of a run.
const form = document.getElementById("run");
const followed = document.querySelector("[data-follow]");
const csrf = (form ?? followed)?.dataset.csrf ?? "";
const byId = (id) => document.getElementById(id);

async function ask(path, body, type = "application/json") {
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

function given() {
  const found = {};
  for (const control of form.querySelectorAll("[data-type]")) {
    const value = valueOf(control);
    if (value !== undefined) found[control.name] = value;
  }
  return found;
}

function order() {
  const terms = [...form.querySelectorAll("[data-term]")].map((each) => [each.dataset.term, each.value]);
  return JSON.stringify({ model: form.dataset.model, input: given(), ...Object.fromEntries(terms.filter(([, value]) => value)) });
}

function showProblems(told) {
  for (const place of form.querySelectorAll("[data-problem]")) {
    const problem = told?.errors?.find((each) => each.input === place.dataset.problem);
    place.hidden = !problem;
    place.textContent = problem?.message ?? "";
    (byId(`in-${place.dataset.problem}`) ?? byId(`term-${place.dataset.problem}`)).toggleAttribute("aria-invalid", Boolean(problem));
  }
  form.querySelector("[aria-invalid]")?.focus();
}

// -- the price before the run -----------------------------------------------------------------------

let asked = 0;
async function price() {
  const place = byId("price");
  if (!place) return;
  const number = ++asked;
  const [good, told] = await ask("/pages/quote", order());
  if (number !== asked || !good) return;
  for (const code of document.querySelectorAll("[data-sample]")) code.textContent = told.samples[code.dataset.sample];
  if (told.problem) { place.textContent = told.problem; return; }
  const cost = csrf ? told.cost : "free on this machine";
  place.textContent = `${cost}, ${told.took}, by ${told.engine}${told.quality === "preview" ? " (preview)" : ""}`;
}

let timer = 0;
function changed(event) {
  const control = event.target;
  if (control.dataset.slides) byId(control.dataset.slides).value = control.value;
  const slide = form.querySelector(`[data-slides="${control.id}"]`);
  if (slide) slide.value = control.value;
  if (control.closest("[data-drop]")) see(control);
  clearTimeout(timer);
  timer = setTimeout(price, 250);
}

// -- files ------------------------------------------------------------------------------------------

function see(control) {
  const place = control.closest("[data-drop]").querySelector(".seen");
  const tag = { image: "img", video: "video", audio: "audio" }[control.dataset.type];
  const path = URL.canParse(control.value) ? new URL(control.value).pathname : "";
  place.hidden = !(tag && path.startsWith("/media/"));
  if (place.hidden) return;
  const shown = document.createElement(tag);
  shown.src = path;
  if (tag === "img") shown.alt = "Input";
  else shown.controls = true;
  place.replaceChildren(shown);
}

async function upload(zone, file) {
  const [hint, target] = [zone.querySelector(".choose"), zone.querySelector("[data-type]")];
  hint.textContent = `Uploading ${file.name} …`;
  try {
    const [good, told] = await ask("/pages/uploads", file, file.type || "application/octet-stream");
    hint.textContent = good ? file.name : told.error;
    if (!good) return;
    target.value = told.url;
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

function fail(text) {
  byId("fault").hidden = !text;
  byId("fault").textContent = text;
}

function stage(told) {
  if (told.status === "queued") return told.position ? `Queued, ${told.position} ahead` : "Queued";
  return { starting: "A worker starts", running: "Running", canceling: "Stopping" }[told.status] ?? told.status;
}

function follow(id) {
  const [waiting, progress, log] = [byId("waiting"), byId("progress"), byId("log")];
  waiting.hidden = false;
  waiting.dataset.id = id;
  progress.removeAttribute("value");
  log.hidden = true;
  log.textContent = "";
  return new Promise((done) => {
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
      const told = JSON.parse(event.data);
      byId("stage").textContent = stage(told);
      byId("result").innerHTML = told.html; // rendered and escaped by the server
      if (!told.over) return;
      events.close();
      waiting.hidden = true;
      window.viewers?.show(byId("result"));
      done();
    });
  });
}

async function run(event) {
  event.preventDefault();
  const button = form.querySelector(".doing .primary");
  button.disabled = true;
  fail("");
  try {
    const [good, told] = await ask("/pages/run", order());
    showProblems(told);
    if (good) await follow(told.id);
    else if (!told.errors) fail(told.error);
  } catch {
    fail("The server does not respond.");
  } finally {
    button.disabled = false;
  }
}

// -- a file that was dropped ------------------------------------------------------------------------

const WORTH = {
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

function again() {
  const found = JSON.parse(sessionStorage.getItem("again") ?? "null");
  const place = byId("again");
  if (!place || found?.model !== form.dataset.model) return;
  sessionStorage.removeItem("again");
  for (const [name, value] of Object.entries(found.inputs)) fill(name, value);
  const lost = found.withheld.length ? ` It carries only a digest of ${found.withheld.join(", ")}.` : "";
  place.textContent = `${found.file}: made by ${found.made_by}, ${WORTH[found.signature]}.${lost} `;
  if (found.prediction) {
    const link = document.createElement("a");
    link.href = `/predictions/${found.prediction}`;
    link.textContent = "Provenance and lineage";
    place.append(link);
  }
  place.hidden = false;
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
byId("cancel")?.addEventListener("click", () => ask(`/pages/predictions/${byId("waiting").dataset.id}/cancel`, "{}"));
if (form) {
  form.addEventListener("input", changed);
  form.addEventListener("submit", run);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.querySelectorAll("[data-drop]").forEach(dropZone);
  again();
  form.querySelectorAll("[data-drop] [data-type]").forEach(see);
  price();
}
if (followed?.dataset.follow) follow(followed.dataset.follow).then(() => location.reload());
