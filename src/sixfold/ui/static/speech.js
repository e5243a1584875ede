"use strict";
// Speech in chats: dictate a message, and read an answer aloud. Both are runs like others, with a price and a receipt.
(() => {
  const byId = (id) => document.getElementById(id);
  const text = byId("text"), problem = byId("problem"), dictate = byId("dictate"), csrf = byId("composer")?.elements.csrf.value;
  const MAX_CHARS = 10000, MAX_SECONDS = 300;

  async function run(model, input) {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
    const body = JSON.stringify({ model, input, wait: true });
    const { ok, data } = await connection.request("/pages/run", { method: "POST", headers, body });
    if (ok && data.status === "succeeded") return data;
    connection.show(problem, ok ? { error: "It takes longer than a minute. The result will be in your history." } : data);
    return null;
  }

  // -- reading aloud ----------------------------------------------------------------------------------

  const audio = new Audio();
  let speaking = null;

  function stopSpeaking() {
    audio.pause();
    if (speaking) speaking.textContent = "Read aloud";
    speaking = null;
  }

  // Without code, and formulas once: their text for screen readers follows them.
  function spokenText(answer) {
    const content = answer.querySelector(".content").cloneNode(true);
    for (const each of content.querySelectorAll("pre, .sources, annotation")) each.remove();
    return content.textContent.replace(/\s+/g, " ").trim().slice(0, MAX_CHARS);
  }

  async function speak(button) {
    const started = speaking === button;
    stopSpeaking();
    if (started) return;
    speaking = button;
    if (!button.dataset.url) {
      button.textContent = "Preparing …";
      connection.show(problem);
      const data = await run("tts", { prompt: spokenText(button.closest(".answer")) || "No text" });
      if (data) {
        button.dataset.url = new URL(data.output.url).pathname;
        button.after(Object.assign(document.createElement("span"), { className: "note", textContent: `${data.cost} USD` }));
      }
      if (speaking !== button) { button.textContent = "Read aloud"; return; }
      if (!data) { stopSpeaking(); return; }
    }
    button.textContent = "Stop reading";
    audio.src = button.dataset.url;
    await audio.play().catch(stopSpeaking);
  }

  audio.addEventListener("ended", stopSpeaking);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-speak]");
    if (button) speak(button);
  });

  // -- dictation --------------------------------------------------------------------------------------

  let recorder = null, limit = 0;

  function showRecording(label) {
    dictate.textContent = label;
    dictate.setAttribute("aria-pressed", String(recorder !== null));
  }

  function insert(words) {
    const [start, end] = [text.selectionStart, text.selectionEnd];
    const space = start && !/\s$/.test(text.value.slice(0, start)) ? " " : "";
    text.setRangeText(space + words, start, end, "end");
    text.dispatchEvent(new Event("input", { bubbles: true }));
    text.focus();
  }

  async function transcribe(blob) {
    dictate.disabled = true;
    showRecording("Transcribing …");
    const headers = { "Content-Type": blob.type.split(";")[0], "X-CSRF-Token": csrf };
    const { ok, data } = await connection.request("/pages/uploads?kind=audio", { method: "POST", headers, body: blob });
    if (!ok) connection.show(problem, data);
    const result = ok && await run("stt", { audio_url: data.url, timestamps: false });
    dictate.disabled = false;
    showRecording("Dictate");
    if (!result) return;
    if (result.output.text.trim()) insert(result.output.text.trim());
    else connection.show(problem, { error: "No words were recognized in the recording." });
  }

  async function record() {
    connection.show(problem);
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch {
      connection.show(problem, { error: "The browser gave no access to a microphone: allow it for this site, on a secure address." });
      return;
    }
    const parts = [];
    recorder = new MediaRecorder(stream);
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", () => {
      clearTimeout(limit);
      for (const track of stream.getTracks()) track.stop();
      const { mimeType } = recorder;
      recorder = null;
      transcribe(new Blob(parts, { type: mimeType }));
    });
    recorder.start();
    limit = setTimeout(() => recorder?.stop(), 1000 * MAX_SECONDS);
    showRecording("Stop and transcribe");
  }

  dictate?.addEventListener("click", () => { if (recorder) recorder.stop(); else record(); });
})();
