"use strict";
// A live session: draw frames or poses on a canvas, send keys and prompts to the server.
const form = document.getElementById("live");
const canvas = document.getElementById("canvas");
const context = canvas.getContext("2d");
const showStatus = (text) => { document.getElementById("stage").textContent = text; };

const again = { title: "Try again", act: () => form.requestSubmit() };
const showRefusal = (data) => connection.show(document.getElementById("stage"), data, data.retry && again);

const heldKeys = new Set();
const MOVES = ["w", "a", "s", "d", "shift"];
const KEYS = { ArrowUp: "w", ArrowLeft: "a", ArrowDown: "s", ArrowRight: "d" };
let [socket, sequence, frameHeader, frames, root] = [null, 0, null, 0, [0, 0, 0]];

const STATES = { requested: "Starting a worker …", starting: "Starting a worker …", ready: "Ready", active: "Live", idle: "Waiting for your input", closing: "Ending …", closed: "Ended", failed: "Failed" };
const [frameBox, pauseBox, stopButton] = ["frame", "pause", "stop"].map((id) => document.getElementById(id));
let promptSequence = 0; // of a new prompt that is not drawn yet

function sendInput(input) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "input", seq: ++sequence, ...input }));
}

// -- time and cost ------------------------------------------------------------------------------------

const meter = document.getElementById("meter");
const clockText = (seconds) => [seconds / 60, seconds % 60].map((part) => String(Math.floor(part)).padStart(2, "0")).join(":");

// What the server has counted and charged: pauses are in neither.
function showMeter({ seconds, cost }) {
  meter.hidden = false;
  meter.textContent = `${clockText(seconds)} · ${form.dataset.free ? "free" : `${Number(cost).toFixed(4)} USD`}`;
  meter.title = form.dataset.free ? "" : `${cost} USD`;
}

function showIgnored(words) {
  const note = document.getElementById("ignored");
  note.hidden = !words.length;
  note.textContent = `Ignored: ${words.join(", ")}`;
}

function showState(message) {
  const isPaused = message.status === "idle" && message.reason === "paused";
  showIgnored(message.ignored ?? []);
  frameBox.dataset.state = message.status;
  pauseBox.hidden = !isPaused;
  if (message.status === "closed" || message.status === "failed") endSession();
  if (promptSequence && message.status === "active") return;
  const reason = message.reason && message.reason !== message.status && !isPaused ? `: ${message.reason}` : "";
  showStatus(isPaused ? "Paused" : STATES[message.status] + reason);
}

function drawn(inputSequence) {
  if (!promptSequence || inputSequence < promptSequence) return;
  promptSequence = 0;
  showStatus(STATES.active);
}

function setKey(key, down) {
  if (heldKeys.has(key) === down) return;
  down ? heldKeys.add(key) : heldKeys.delete(key);
  document.querySelector(`[data-key="${key}"]`)?.setAttribute("aria-pressed", String(down));
  sendInput({ keys: [...heldKeys] });
}

async function frame(blob) {
  const image = await createImageBitmap(blob);
  if (canvas.width !== image.width) [canvas.width, canvas.height] = [image.width, image.height];
  context.drawImage(image, 0, 0);
  canvas.dataset.frames = String(++frames);
  tools.snapshot.disabled = false;
  tools.record.disabled = !resumePath;
  socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ type: "credit", n: 1 }));
}

// The poster is shown until the first frame arrives.
function poster() {
  const image = new Image();
  image.onload = () => {
    if (frames) return;
    const scale = Math.max(canvas.width / image.width, canvas.height / image.height);
    const [width, height] = [image.width * scale, image.height * scale];
    context.globalAlpha = 0.55;
    context.drawImage(image, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
    context.globalAlpha = 1;
  };
  image.src = canvas.dataset.poster;
}

// -- poses ------------------------------------------------------------------------------------------

const SCALE = 150; // pixels per meter
const project = (x, y, z) => [canvas.width / 2 + (x - root[0]) * SCALE + (z - root[2]) * 40, canvas.height * 0.82 - y * SCALE + (z - root[2]) * 40];
const LIMBS = [
  ["pelvis", "spine"], ["spine", "chest"], ["chest", "neck"], ["neck", "head"],
  ...["left", "right"].flatMap((side) => [
    ["chest", `${side}_shoulder`], [`${side}_shoulder`, `${side}_elbow`], [`${side}_elbow`, `${side}_wrist`], [`${side}_wrist`, `${side}_hand`],
    ["pelvis", `${side}_hip`], [`${side}_hip`, `${side}_knee`], [`${side}_knee`, `${side}_ankle`], [`${side}_ankle`, `${side}_toe`],
  ]),
];

function drawPose(pose) {
  const at = pose.joints.pelvis;
  root = [root[0] + (at[0] - root[0]) * 0.2, 0, root[2] + (at[2] - root[2]) * 0.2];
  context.fillStyle = "#161614";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.strokeStyle = "#35332e";
  for (let line = -12; line <= 12; line += 1) {
    for (const [from, to] of [[[line, -6], [line, 6]], [[-12, line / 2], [12, line / 2]]]) {
      context.beginPath();
      const [x, z] = [Math.round(root[0]), Math.round(root[2])];
      context.moveTo(...project(from[0] + x, 0, from[1] + z));
      context.lineTo(...project(to[0] + x, 0, to[1] + z));
      context.stroke();
    }
  }
  context.lineWidth = 7;
  context.lineCap = "round";
  for (const [from, to] of LIMBS) {
    const [a, b] = [pose.joints[from], pose.joints[to]];
    if (!a || !b) continue;
    context.strokeStyle = to.startsWith("left") ? "#4fb8b3" : to.startsWith("right") ? "#e5ae55" : "#ece9e2";
    context.beginPath();
    context.moveTo(...project(...a));
    context.lineTo(...project(...b));
    context.stroke();
  }
  context.lineWidth = 1;
  tools.snapshot.disabled = false;
  tools.record.disabled = !resumePath;
  canvas.dataset.frames = String(++frames);
}

// -- the tools --------------------------------------------------------------------------------------

const tools = Object.fromEntries(["snapshot", "record", "fullscreen"].map((id) => [id, document.getElementById(id)]));
const [saved, savedNotice] = ["saved", "saved-notice"].map((id) => document.getElementById(id));
const create = (name, properties) => Object.assign(document.createElement(name), properties);

function addSaved(picture, ...parts) {
  const item = create("li", {});
  const line = create("p", {});
  line.append(...parts);
  item.append(picture, line);
  saved.prepend(item);
  savedNotice.hidden = false;
  savedNotice.firstElementChild.textContent = `${saved.children.length} saved ↓`;
  return line;
}

function post(path, body, type = "application/json") {
  const headers = { "Content-Type": type };
  if (form.dataset.csrf) headers["X-CSRF-Token"] = form.dataset.csrf;
  return connection.request(path, { method: "POST", headers, body });
}

// The picture is downloaded, and kept as a file of the account for the forms of other models.
async function snapshot() {
  const image = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  const name = `${form.dataset.model}_${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.png`;
  const local = URL.createObjectURL(image);
  const download = create("a", { href: local, download: name, textContent: "Download" });
  download.click();
  const line = addSaved(create("img", { src: local, alt: "Snapshot" }), download);
  const { ok, data } = await post("/pages/uploads?kind=image", image, image.type);
  if (ok) line.append(create("a", { href: data.url, textContent: "Saved file" }));
  else line.append(create("span", { className: "problem", textContent: `It is not saved on the server: ${data.error}` }));
}

// A recording is made by the server, of the frames that it sent, and becomes a run.
const recordingMark = document.getElementById("recording");
let [recordingClock, recordingStart] = [0, 0];
let unsaved = false; // of a recording that has ended, and whose run was refused

function showRecording(maxSeconds) {
  const seconds = (performance.now() - recordingStart) / 1000;
  recordingMark.textContent = `Recording ${clockText(seconds)}`;
  if (seconds >= maxSeconds) endRecording();
}

async function startRecording() {
  const { ok, data } = await post(`/pages/sessions/${sessionId}/recording`, JSON.stringify({ on: true }));
  if (!ok) { showRefusal(data); return; }
  tools.record.setAttribute("aria-pressed", "true");
  tools.record.textContent = "Stop recording";
  recordingStart = performance.now();
  recordingClock = setInterval(showRecording, 500, data.max_seconds);
  recordingMark.hidden = false;
  showRecording(data.max_seconds);
}

async function endRecording() {
  if (!recordingClock && !unsaved) return;
  clearInterval(recordingClock);
  recordingClock = 0;
  recordingMark.hidden = true;
  tools.record.setAttribute("aria-pressed", "false");
  const { ok, status, data } = await post(`/pages/sessions/${sessionId}/recording`, JSON.stringify({ on: false }));
  unsaved = !ok && status !== 404 && status !== 409;
  tools.record.textContent = unsaved ? "Save recording" : "Record";
  tools.record.disabled = !unsaved && !resumePath;
  if (!ok) { showRefusal({ ...data, retry: false }); return; }
  const picture = create("span", { className: "glyph", textContent: "Encoding …" });
  const link = create("a", { href: `/predictions/${data.id}`, textContent: `Recording, ${clockText(data.seconds)}` });
  addSaved(picture, link);
  const events = connection.stream(`/pages/predictions/${data.id}/events`, {
    status: ({ over, status, html }) => {
      if (!over) return;
      events.close();
      const video = new DOMParser().parseFromString(html, "text/html").querySelector("video");
      const path = video?.getAttribute("src") ?? video?.querySelector("source")?.getAttribute("src");
      if (status === "succeeded" && path) picture.replaceWith(create("img", { src: `${path.split("#")[0]}?w=320`, alt: "First frame of the recording" }));
      else picture.textContent = "It failed";
    },
  });
}

tools.record.addEventListener("click", () => (recordingClock || unsaved ? endRecording() : startRecording()));
tools.snapshot.addEventListener("click", snapshot);
tools.fullscreen.hidden = !document.fullscreenEnabled;
tools.fullscreen.addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : frameBox.requestFullscreen()));
document.addEventListener("fullscreenchange", () => {
  tools.fullscreen.setAttribute("aria-pressed", String(Boolean(document.fullscreenElement)));
  tools.fullscreen.textContent = document.fullscreenElement ? "Leave fullscreen" : "Fullscreen";
  canvas.focus();
});
document.getElementById("continue").addEventListener("click", () => { sendInput({ keys: [] }); canvas.focus(); });

// -- the socket -------------------------------------------------------------------------------------

// A session outlives its connection for a while.
const RESUME_MS = 2000, MAX_RESUMES = 15;
// The codes with which the server ends a session or a connection to it for good.
const FINAL = { 1000: "Ended", 1011: "The session has failed.", 4000: "The session ended after a period without input.", 4001: "The session continues in another window.", 4401: "The session has ended." };
let [resumePath, resumes, unwatch, sessionId] = ["", 0, null, ""];

function endSession() {
  resumePath = "";
  tools.record.disabled = !unsaved;
  if (recordingClock) endRecording();
  unwatch?.();
  unwatch = null;
  stopButton.hidden = pauseBox.hidden = true;
  form.querySelector(".primary").textContent = "Start again";
}

function connect(path) {
  const current = socket = new WebSocket(`${location.origin.replace("http", "ws")}${path}`);
  current.onmessage = receive;
  current.onopen = () => {
    if (resumes) showStatus("Connected again");
    resumes = 0;
    current.send(JSON.stringify({ type: "hello" }));
  };
  current.onclose = ({ code }) => {
    if (current !== socket) return;
    if (resumePath && !(code in FINAL)) { resume(); return; }
    if (resumePath) showStatus(FINAL[code]);
    endSession();
  };
}

function resume() {
  if (!resumePath) return;
  connection.check();
  if (++resumes > MAX_RESUMES) {
    endSession();
    showRefusal({ error: "The connection was lost for too long: the session has ended.", retry: true });
    return;
  }
  showStatus("Connection lost. The session waits for you; reconnecting …");
  setTimeout(() => { if (resumePath) connect(resumePath); }, RESUME_MS);
}

// A silent server does not close the socket.
document.addEventListener("connection-lost", () => {
  if (!resumePath || resumes) return;
  const silent = socket;
  socket = null;
  silent?.close();
  resume();
});

function receive(event) {
  if (event.data instanceof Blob) { if (frameHeader) frame(event.data); return; }
  const message = JSON.parse(event.data);
  if (message.type === "state") showState(message);
  else if (message.type === "frame") { frameHeader = message; drawn(message.input_seq); }
  else if (message.type === "pose" && message.joints) drawPose(message);
  else if (message.type === "ack" && form.dataset.kind === "json") drawn(message.input_seq);
  else if (message.type === "stats") showMeter(message);
  else if (message.type === "error") showStatus(message.error);
}

async function start(event) {
  event.preventDefault();
  if (socket?.readyState === WebSocket.OPEN) {
    sendInput({ prompt: form.prompt.value });
    promptSequence = sequence;
    showStatus(form.dataset.kind === "image" ? "Painting the new world …" : "Changing the movement …");
    return;
  }
  showStatus("Starting a worker …");
  const { ok, data } = await post("/pages/sessions", JSON.stringify({ model: form.dataset.model, prompt: form.prompt.value }));
  if (!ok) { showRefusal(data); return; }
  [sequence, promptSequence, resumes, resumePath] = [0, 0, 0, data.resume];
  sessionId = data.id;
  unwatch = connection.watch();
  connect(data.path);
  stopButton.hidden = false;
  form.querySelector(".primary").textContent = "Update";
  canvas.focus();
}

stopButton.addEventListener("click", () => {
  showStatus(STATES.closing);
  resumePath = "";
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "close" }));
});
if (canvas.dataset.poster) poster();
form.addEventListener("submit", start);
// Text that is typed, and shortcuts of the browser, do not move.
const isTyped = (target) => target.matches("input, textarea, select");
const isOtherUse = ({ target, ctrlKey, metaKey, altKey }) => ctrlKey || metaKey || altKey || isTyped(target) || Boolean(target.closest("dialog"));
const releaseKeys = () => [...heldKeys].forEach((key) => setKey(key, false));
for (const [type, down] of [["keydown", true], ["keyup", false]]) {
  document.addEventListener(type, (event) => {
    const key = KEYS[event.key] ?? event.key.toLowerCase();
    if (!MOVES.includes(key)) return;
    if (down && (!resumePath || isOtherUse(event))) return;
    if (down) event.preventDefault();
    setKey(key, down);
  });
}
for (const pad of document.querySelectorAll("[data-key]")) {
  pad.addEventListener("pointerdown", (event) => { event.preventDefault(); setKey(pad.dataset.key, true); });
  pad.addEventListener("contextmenu", (event) => event.preventDefault()); // of a long touch
  for (const type of ["pointerup", "pointerleave", "pointercancel"]) pad.addEventListener(type, () => setKey(pad.dataset.key, false));
}
addEventListener("blur", releaseKeys);
document.addEventListener("focusin", ({ target }) => { if (isTyped(target)) releaseKeys(); });
canvas.addEventListener("click", (event) => {
  if (form.dataset.kind !== "json") return;
  const [x, y] = [event.offsetX * canvas.width / canvas.clientWidth, event.offsetY * canvas.height / canvas.clientHeight];
  const z = (y - canvas.height * 0.82) / 40;
  sendInput({ waypoints: [[(x - canvas.width / 2 - z * 40) / SCALE + root[0], z + root[2]]] });
});
setInterval(() => { if (heldKeys.size) sendInput({ keys: [...heldKeys] }); }, 400);
addEventListener("pagehide", () => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "close" })); });
