"use strict";
// A live session: draw frames or poses on a canvas, send keys and prompts to the server.
const form = document.getElementById("live");
const canvas = document.getElementById("canvas");
const pen = canvas.getContext("2d");
const say = (text) => { document.getElementById("stage").textContent = text; };
const held = new Set();
const KEYS = { ArrowUp: "w", ArrowLeft: "a", ArrowDown: "s", ArrowRight: "d" };
let [socket, counted, head, frames, root] = [null, 0, null, 0, [0, 0, 0]];

function tell(input) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "input", seq: ++counted, ...input }));
}

function hold(key, down) {
  if (held.has(key) === down) return;
  down ? held.add(key) : held.delete(key);
  document.querySelector(`[data-key="${key}"]`)?.setAttribute("aria-pressed", String(down));
  tell({ keys: [...held] });
}

async function frame(blob) {
  const picture = await createImageBitmap(blob);
  if (canvas.width !== picture.width) [canvas.width, canvas.height] = [picture.width, picture.height];
  pen.drawImage(picture, 0, 0);
  canvas.dataset.frames = String(++frames);
  socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ type: "credit", n: 1 }));
}

function poster() { // shown until the first frame arrives
  const picture = new Image();
  picture.onload = () => {
    if (frames) return;
    const scale = Math.max(canvas.width / picture.width, canvas.height / picture.height);
    const [wide, tall] = [picture.width * scale, picture.height * scale];
    pen.globalAlpha = 0.55;
    pen.drawImage(picture, (canvas.width - wide) / 2, (canvas.height - tall) / 2, wide, tall);
    pen.globalAlpha = 1;
  };
  picture.src = canvas.dataset.poster;
}

// -- poses ------------------------------------------------------------------------------------------

const SCALE = 150; // pixels per meter
const seen = (x, y, z) => [canvas.width / 2 + (x - root[0]) * SCALE + (z - root[2]) * 40, canvas.height * 0.82 - y * SCALE + (z - root[2]) * 40];
const LIMBS = [
  ["pelvis", "spine"], ["spine", "chest"], ["chest", "neck"], ["neck", "head"],
  ...["left", "right"].flatMap((side) => [
    ["chest", `${side}_shoulder`], [`${side}_shoulder`, `${side}_elbow`], [`${side}_elbow`, `${side}_wrist`], [`${side}_wrist`, `${side}_hand`],
    ["pelvis", `${side}_hip`], [`${side}_hip`, `${side}_knee`], [`${side}_knee`, `${side}_ankle`], [`${side}_ankle`, `${side}_toe`],
  ]),
];

function pose(told) {
  const at = told.joints.pelvis;
  root = [root[0] + (at[0] - root[0]) * 0.2, 0, root[2] + (at[2] - root[2]) * 0.2];
  pen.fillStyle = "#161614";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.strokeStyle = "#35332e";
  for (let line = -12; line <= 12; line += 1) {
    for (const [from, to] of [[[line, -6], [line, 6]], [[-12, line / 2], [12, line / 2]]]) {
      pen.beginPath();
      const [x, z] = [Math.round(root[0]), Math.round(root[2])];
      pen.moveTo(...seen(from[0] + x, 0, from[1] + z));
      pen.lineTo(...seen(to[0] + x, 0, to[1] + z));
      pen.stroke();
    }
  }
  pen.lineWidth = 7;
  pen.lineCap = "round";
  for (const [from, to] of LIMBS) {
    const [a, b] = [told.joints[from], told.joints[to]];
    if (!a || !b) continue;
    pen.strokeStyle = to.startsWith("left") ? "#4fb8b3" : to.startsWith("right") ? "#e5ae55" : "#ece9e2";
    pen.beginPath();
    pen.moveTo(...seen(...a));
    pen.lineTo(...seen(...b));
    pen.stroke();
  }
  pen.lineWidth = 1;
  canvas.dataset.frames = String(++frames);
}

// -- the socket -------------------------------------------------------------------------------------

function hear(event) {
  if (event.data instanceof Blob) { if (head) frame(event.data); return; }
  const told = JSON.parse(event.data);
  if (told.type === "state") say(told.status + (told.reason ? `: ${told.reason}` : ""));
  else if (told.type === "frame") head = told;
  else if (told.type === "pose" && told.joints) pose(told);
  else if (told.type === "error") say(told.error);
}

async function begin(event) {
  event.preventDefault();
  if (socket?.readyState === WebSocket.OPEN) { tell({ prompt: form.prompt.value }); return; }
  say("A worker starts …");
  const headers = { "Content-Type": "application/json" };
  if (form.dataset.csrf) headers["X-CSRF-Token"] = form.dataset.csrf;
  const body = JSON.stringify({ model: form.dataset.model, prompt: form.prompt.value });
  const response = await fetch("/pages/sessions", { method: "POST", headers, body });
  const told = await response.json();
  if (!response.ok) { say(told.error); return; }
  socket = new WebSocket(`${location.origin.replace("http", "ws")}${told.path}`);
  socket.onmessage = hear;
  socket.onopen = () => socket.send(JSON.stringify({ type: "hello" }));
  socket.onclose = () => { form.querySelector(".primary").textContent = "Start again"; };
  form.querySelector(".primary").textContent = "Change";
  canvas.focus();
}

if (canvas.dataset.poster) poster();
form.addEventListener("submit", begin);
for (const [type, down] of [["keydown", true], ["keyup", false]]) {
  canvas.addEventListener(type, (event) => {
    const key = KEYS[event.key] ?? event.key.toLowerCase();
    if (!"wasd".includes(key) || key.length !== 1) return;
    event.preventDefault();
    hold(key, down);
  });
}
for (const pad of document.querySelectorAll("[data-key]")) {
  pad.addEventListener("pointerdown", () => hold(pad.dataset.key, true));
  for (const type of ["pointerup", "pointerleave", "pointercancel"]) pad.addEventListener(type, () => hold(pad.dataset.key, false));
}
canvas.addEventListener("blur", () => [...held].forEach((key) => hold(key, false)));
canvas.addEventListener("click", (event) => {
  if (form.dataset.kind !== "json") return;
  const [x, y] = [event.offsetX * canvas.width / canvas.clientWidth, event.offsetY * canvas.height / canvas.clientHeight];
  const z = (y - canvas.height * 0.82) / 40;
  tell({ waypoints: [[(x - canvas.width / 2 - z * 40) / SCALE + root[0], z + root[2]]] });
});
setInterval(() => { if (held.size) tell({ keys: [...held] }); }, 400);
addEventListener("pagehide", () => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "close" })); });
