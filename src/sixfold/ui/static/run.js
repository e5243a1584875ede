"use strict";
// The form of a model: price updates, file uploads, and progress of a run.
const form = document.getElementById("run");
const predictionBox = document.querySelector("[data-follow]");
const csrf = (form ?? predictionBox)?.dataset.csrf ?? "";
const byId = (id) => document.getElementById(id);

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  return connection.request(path, { method: "POST", headers, body });
}

// -- inputs -----------------------------------------------------------------------------------------

function valueOf(control) {
  const type = control.dataset.type;
  if (type === "boolean") return control.checked;
  if (control.value === "") return undefined;
  if (type === "integer" || type === "number") return Number(control.value);
  if (type === "sizes" || type === "project") return parsed(control.value) ?? (type === "sizes" ? control.value.split(",").map((each) => each.trim()) : control.value);
  return control.value;
}

const parsed = (text) => { try { return JSON.parse(text); } catch { return null; } };

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
    connection.show(element, problem && { ...problem, error: problem.message }, ...(problem?.steps ?? []));
    const control = byId(`in-${element.dataset.problem}`) ?? byId(`option-${element.dataset.problem}`);
    if (problem) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
  form.querySelector("[aria-invalid]")?.focus();
  // A field with a file has no control that can have the focus.
  form.querySelector("[data-problem]:not([hidden])")?.scrollIntoView({ block: "center" });
}

// -- the price before the run -----------------------------------------------------------------------

let priceRequests = 0, expectedSeconds = null, edited = false;
async function updatePrice() {
  const note = byId("price");
  if (!note) return;
  const number = ++priceRequests;
  const { ok, data } = await post("/pages/quote", requestBody());
  if (number !== priceRequests || !ok) return;
  for (const code of document.querySelectorAll("[data-sample]")) code.textContent = data.samples[code.dataset.sample];
  // An untouched form keeps the price instead of naming the inputs that are still missing.
  if (data.problem) { if (edited) note.textContent = missingInputs()[0]?.message ?? data.problem; return; }
  const cost = csrf ? data.cost : "free on this machine";
  expectedSeconds = data.seconds;
  note.textContent = `${cost}, ${data.took}, by ${data.engine}${data.quality === "preview" ? " (preview)" : ""}`;
}

let timer = 0;
function changed(event) {
  const control = event.target;
  edited = true;
  if (control.dataset.slides) byId(control.dataset.slides).value = control.value;
  const slide = form.querySelector(`[data-slides="${control.id}"]`);
  if (slide) slide.value = control.value;
  if (control.closest("[data-drop]")) showFile(control);
  clearTimeout(timer);
  timer = setTimeout(updatePrice, 250);
}

// -- files ------------------------------------------------------------------------------------------

const CHOOSE = "Drop a file or browse";

// Names of files by their path, so that a field shows a name instead of a URL after a reload.
const MAX_NAMES = 50;
const fileNames = () => { try { return JSON.parse(localStorage.getItem("file-names") ?? "{}"); } catch { return {}; } };
function rememberName(url, name) {
  const names = { ...fileNames(), [new URL(url).pathname]: name };
  localStorage.setItem("file-names", JSON.stringify(Object.fromEntries(Object.entries(names).slice(-MAX_NAMES))));
}

function setFile(control, url, name) {
  rememberName(url, name);
  delete control.closest("[data-drop]").dataset.label;
  control.value = url;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

function previewOf(kind, path) {
  const preview = document.createElement({ image: "img", video: "video", audio: "audio" }[kind]);
  preview.src = kind === "image" && !path.endsWith(".svg") ? `${path}?w=320` : path;
  if (kind === "image") preview.alt = "Input";
  else preview.controls = true;
  return preview;
}

function showFile(control) {
  const zone = control.closest("[data-drop]");
  const [box, kind] = [zone.querySelector(".file-preview"), control.dataset.type];
  const path = URL.canParse(control.value) ? new URL(control.value).pathname : "";
  box.hidden = !path.startsWith("/media/");
  zone.classList.toggle("has-file", !box.hidden);
  if (box.hidden) { box.replaceChildren(); return; }
  const line = document.createElement("p");
  line.className = "file-name";
  line.textContent = zone.dataset.label || fileNames()[path] || `Your ${kind === "audio" ? "audio file" : kind}`;
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "quiet remove";
  remove.textContent = "Remove";
  remove.addEventListener("click", () => {
    control.value = "";
    zone.querySelector(".choose").textContent = CHOOSE;
    control.dispatchEvent(new Event("input", { bubbles: true }));
  });
  box.replaceChildren(...(["image", "video", "audio"].includes(kind) ? [previewOf(kind, path)] : []), line, remove);
}

function sizeText(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

// What is wrong with a file, before it is sent: its size, or first bytes that no accepted format has.
async function fileProblem(zone, file) {
  const most = Number(form.dataset.maxBytes);
  if (file.size > most) return `${file.name} has ${sizeText(file.size)}; a file may have at most ${sizeText(most)}.`;
  if (!zone.dataset.signatures) return "";
  const head = String.fromCharCode(...new Uint8Array(await file.slice(0, 64).arrayBuffer()));
  const kind = zone.querySelector("[data-type]").dataset.type;
  if (new RegExp(`^(?:${zone.dataset.signatures})`, "s").test(head)) return "";
  return `${file.name} is not ${kind === "video" ? "a" : "an"} ${kind === "audio" ? "audio file" : kind} that can be read here.`;
}

function send(path, file, report) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest(); // fetch does not report the progress of an upload
    request.open("POST", path);
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    if (csrf) request.setRequestHeader("X-CSRF-Token", csrf);
    request.upload.addEventListener("progress", (event) => { if (event.lengthComputable) report(event.loaded / event.total); });
    request.addEventListener("load", () => {
      const [type, text] = [request.getResponseHeader("Content-Type"), request.responseText];
      if (request.status < 400) resolve([true, JSON.parse(text)]);
      else resolve([false, connection.parse(request.status, type, text)]);
    });
    request.addEventListener("error", () => { connection.check(); resolve([false, connection.UNREACHABLE]); });
    request.addEventListener("loadend", connection.watch());
    request.send(file);
  });
}

async function upload(zone, file) {
  const [hint, target] = [zone.querySelector(".choose"), zone.querySelector("[data-type]")];
  const chooseAnother = { title: "Choose another file", act: () => zone.querySelector("[type=file]").click() };
  const again = { title: "Try again", act: () => upload(zone, file) };
  const fail = (data) => {
    hint.textContent = CHOOSE;
    const steps = data.retry ? [again] : data.action ? [] : [chooseAnother];
    showProblems({ errors: [{ input: target.name, message: data.error, action: data.action, steps }] });
  };
  showProblems(null);
  const problem = await fileProblem(zone, file);
  if (problem) { fail({ error: problem }); return; }
  const report = (share) => { hint.textContent = share < 1 ? `Uploading ${file.name} … ${Math.floor(100 * share)} %` : `Storing ${file.name} …`; };
  report(0);
  const [ok, data] = await send(`/pages/uploads?${new URLSearchParams({ kind: target.dataset.type, name: file.name ?? "" })}`, file, report);
  if (!ok) { fail(data); return; }
  hint.textContent = CHOOSE;
  setFile(target, data.url, file.name);
}

function dropZone(zone) {
  const over = (event) => { event.preventDefault(); zone.classList.toggle("over", event.type === "dragover"); };
  zone.addEventListener("dragover", over);
  zone.addEventListener("dragleave", over);
  zone.addEventListener("drop", (event) => {
    over(event);
    if (event.dataTransfer.files[0]) upload(zone, event.dataTransfer.files[0]);
  });
  zone.querySelector(".tray")?.addEventListener("click", (event) => {
    const choice = event.target.closest("[data-url]");
    if (choice) setFile(zone.querySelector("[data-type]"), choice.dataset.url, choice.title);
  });
  zone.querySelector("[type=file]").addEventListener("change", (event) => {
    if (event.target.files[0]) upload(zone, event.target.files[0]);
    event.target.value = "";
  });
}

// -- the run ----------------------------------------------------------------------------------------

function showError(data) {
  const again = { title: "Try again", act: () => form.requestSubmit() };
  const fault = byId("fault");
  if (fault) connection.show(fault, data, data?.retry && again, ...(data?.steps ?? []));
  else if (data) { byId("waiting").hidden = false; connection.show(byId("stage"), data); }
}

function stateText(data) {
  if (data.status === "queued") return data.position ? `Queued, ${data.position} ahead` : "Queued";
  return { starting: "Starting a worker", running: "Running", canceling: "Stopping" }[data.status] ?? data.status;
}

// The shape of the result, as far as the form names it.
function aspectRatio() {
  const value = (name) => byId(`in-${name}`)?.value ?? "";
  const [width, height] = [Number(value("width")), Number(value("height"))];
  if (width > 0 && height > 0) return width / height;
  const named = `${value("size")} ${value("aspect_ratio")}`.match(/(\d+)\s*[x:×]\s*(\d+)/);
  return named ? named[1] / named[2] : 1;
}

// -- a notification when a long run ends --------------------------------------------------------------

const LONG_SECONDS = 8;
const NOTIFY = "notify-when-done";
const notifyButton = byId("notify");
const isWanted = () => Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "1";

function offerNotification() {
  if (!notifyButton || !window.Notification || Notification.permission === "denied") return;
  notifyButton.hidden = false;
  notifyButton.setAttribute("aria-pressed", String(isWanted()));
}

async function chooseNotification() {
  const on = !isWanted() && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(NOTIFY, on ? "1" : "0");
  if (Notification.permission === "denied") notifyButton.hidden = true;
  else notifyButton.setAttribute("aria-pressed", String(on));
}

// Only for a run that was offered it, and while another page is in front.
function notifyEnd(status) {
  const wasOffered = notifyButton && !notifyButton.hidden;
  if (notifyButton) notifyButton.hidden = true;
  if (!wasOffered || !document.hidden || !isWanted()) return;
  try {
    const notification = new Notification(`${pageTitle}: ${status}`, { tag: location.href });
    notification.addEventListener("click", () => { window.focus(); notification.close(); });
  } catch { /* some phones notify from service workers only */ }
}

const pageTitle = document.title;
let clock = 0;

// Show that a run has begun, in the frame of the click that asks for it.
function showWaiting(text) {
  const skeleton = byId("skeleton");
  byId("waiting").hidden = false;
  byId("stage").textContent = text;
  byId("progress").removeAttribute("value");
  const started = performance.now();
  const tick = () => {
    const seconds = Math.floor((performance.now() - started) / 1000);
    if (seconds >= LONG_SECONDS) offerNotification();
    const expected = Math.max(1, Math.round(expectedSeconds ?? 0));
    byId("clock").textContent = `${seconds} s${expectedSeconds && seconds <= expected ? ` of about ${expected} s` : ""}`;
  };
  clearInterval(clock);
  clock = setInterval(tick, 1000);
  tick();
  if (!skeleton) return;
  byId("result").replaceChildren();
  skeleton.hidden = !["image", "video"].includes(form.dataset.kind);
  skeleton.style.setProperty("--ratio", aspectRatio());
  document.body.classList.add("has-run");
  const graph = document.querySelector("[data-pane]");
  (graph ?? document.querySelector(".run-result")).scrollIntoView({ block: "nearest" });
  // On a small screen the result, or the graph with the result below it, begins at the top.
  if (matchMedia("(max-width: 56rem)").matches) (graph ?? document.querySelector(".run-result")).scrollIntoView({ block: "start" });
}

function endWaiting() {
  clearInterval(clock);
  document.title = pageTitle;
  byId("waiting").hidden = true;
  if (byId("skeleton")) byId("skeleton").hidden = true;
}

// A log that the result shows as a warning is not repeated.
function dropWarning(log) {
  const plain = (text) => text.replaceAll("`", "").trim().toLowerCase();
  const warnings = [...byId("result").querySelectorAll(".warning")].map((each) => plain(each.textContent));
  log.hidden ||= warnings.includes(plain(log.textContent));
}

// The result of a workflow is below its graph; it does not move while someone types.
function showBelowGraph() {
  if (!document.querySelector("[data-pane]") || document.activeElement?.matches("input, textarea, select")) return;
  byId("result").querySelector("figure")?.scrollIntoView({ block: "nearest" });
}

function follow(id) {
  const [progress, log] = [byId("progress"), byId("log")];
  byId("waiting").dataset.id = id;
  log.hidden = true;
  log.textContent = "";
  document.dispatchEvent(new CustomEvent("followed"));
  return new Promise((resolve) => {
    const events = connection.stream(`/pages/predictions/${id}/events`, {
      node: (data) => { document.dispatchEvent(new CustomEvent("node", { detail: data })); }, // handled by graph.js
      progress: (data) => {
        progress.value = data.progress;
        document.title = `● ${Math.round(100 * progress.value)} % · ${pageTitle}`;
      },
      log: ({ line }) => {
        log.hidden = false;
        log.textContent += `${line}\n`;
        log.scrollTop = log.scrollHeight;
      },
      status: (data) => {
        byId("stage").textContent = stateText(data);
        if (!data.over) return;
        events.close();
        document.dispatchEvent(new CustomEvent("ended", { detail: { id, status: data.status } })); // handled by graph.js
        byId("result").innerHTML = data.html; // rendered and escaped by the server
        connection.balance(data);
        endWaiting();
        dropWarning(log);
        notifyEnd(data.status);
        window.viewers?.show(byId("result"));
        showBelowGraph();
        resolve();
      },
    }, {
      lost: () => { byId("stage").textContent = "Connection lost. Your run continues on the server; reconnecting …"; },
      gone: (data) => { endWaiting(); showError(data); },
    });
  });
}

// The page's URL names the run, so that a reload shows it again.
function remember(id) {
  const url = new URL(location.href);
  for (const name of ["from", "as"]) url.searchParams.delete(name);
  url.searchParams.set("run", id);
  history.replaceState(null, "", url);
}

// Required inputs without a value, each with its example as the next step.
function missingInputs() {
  const empty = [...form.querySelectorAll("[data-type][required]")].filter((each) => !each.value.trim());
  return empty.map((each) => {
    const use = () => { each.value = each.placeholder; showProblems(null); each.dispatchEvent(new Event("input", { bubbles: true })); each.focus(); };
    const steps = each.placeholder && !each.closest("[data-drop]") ? [{ title: "Use the example", act: use }] : [];
    const label = form.querySelector(`label[for="${each.id}"]`).firstChild.textContent.trim();
    return { input: each.name, message: `${label[0].toUpperCase()}${label.slice(1)} is required.`, steps };
  });
}

async function run(event) {
  event.preventDefault();
  const errors = missingInputs();
  if (errors.length) { showProblems({ errors }); return; }
  const button = form.querySelector(".actions .primary");
  button.disabled = true;
  showError(null);
  const previous = [...byId("result").childNodes];
  showWaiting("Sending");
  const { ok, status, data } = await post("/pages/run", requestBody());
  if (ok) {
    button.disabled = false;
    showProblems(null);
    remember(data.id);
    await follow(data.id);
    updatePrice();
    return;
  }
  endWaiting();
  button.disabled = false;
  showProblems(data);
  if (data.errors) { byId("result").replaceChildren(...previous); return; }
  // Whether the run has begun is known only to the server.
  const history = { title: "History", href: "/predictions" };
  showError(status ? data : { ...data, error: "Can't reach the server. If your run has begun, it is in the history.", steps: [history] });
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
    follow(file.prediction); // its result takes the place of the example
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

// A receipt that is opened is shown whole.
document.addEventListener("toggle", ({ target }) => {
  if (target.matches(".receipt-strip[open]") && target.contains(document.activeElement)) target.scrollIntoView({ block: "nearest" });
}, { capture: true });
document.querySelectorAll("[data-tabs]").forEach(tabs);
byId("cancel")?.addEventListener("click", async (event) => {
  event.preventDefault();
  const { ok, data } = await post(`/pages/predictions/${byId("waiting").dataset.id}/cancel`, "{}");
  if (!ok) showError({ ...data, retry: false });
});
notifyButton?.addEventListener("click", chooseNotification);
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
  if (form.dataset.run) { showWaiting("Loading"); follow(form.dataset.run); }
}
if (predictionBox?.dataset.follow) { showWaiting(byId("stage").textContent); follow(predictionBox.dataset.follow).then(() => location.reload()); }
