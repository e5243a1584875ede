"use strict";
// The row below a result: copy it, vary it in the form, and menus that close by themselves.
(() => {
  const clipboard = navigator.clipboard;

  function prepare(container) {
    for (const button of container.querySelectorAll("[data-copy]")) button.hidden = false;
  }

  // Clipboards take images as PNG only.
  async function asPng(url) {
    const blob = await (await fetch(url)).blob();
    if (blob.type === "image/png") return blob;
    const image = await createImageBitmap(blob);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  }

  // The text of a transcript without its times, or the data.
  function textOf(outputs, text) {
    const lines = [...outputs.querySelectorAll(".transcript .line")];
    return lines.length ? lines.map((line) => line.textContent).join("\n") : text ?? outputs.querySelector("pre").textContent;
  }

  // Clipboards hold no video, audio or 3D model, so that its link is copied.
  async function copyLinks(button) {
    const files = [...button.closest(".prediction").querySelectorAll(".outputs figcaption a[download]")].map((link) => link.href);
    const several = files.length > 1;
    await connection.copy(files.join("\n"));
    return `Copied the ${several ? `links to ${files.length} files` : `link to the ${button.dataset.what}`}. Anyone with ${several ? "a link" : "the link"} can open it.`;
  }

  async function copyImage(button) {
    if (!clipboard?.write || !window.ClipboardItem) return copyLinks(button);
    try {
      await clipboard.write([new ClipboardItem({ "image/png": asPng(button.dataset.url) })]);
    } catch (error) {
      if (error.name === "NotAllowedError") throw error;
      return copyLinks(button); // a drawing, which browsers do not convert
    }
    const count = button.closest(".prediction").querySelectorAll(".outputs figcaption a[download]").length;
    return count > 1 ? `Copied the first of ${count} images` : "Copied the image";
  }

  async function copyText(button) {
    const outputs = button.closest(".prediction").querySelector(".outputs");
    const isText = outputs.querySelector(".transcript .line") || "text" in button.dataset;
    await connection.copy(textOf(outputs, button.dataset.text));
    if ("cut" in button.dataset) return "Copied the beginning. The download has all of it.";
    return isText ? "Copied the text" : "Copied the data as JSON";
  }

  const COPY = { image: copyImage, link: copyLinks, text: copyText };
  async function copy(button) {
    const note = button.parentElement.querySelector("[data-copied]");
    try {
      note.textContent = await COPY[button.dataset.copy](button);
    } catch {
      note.textContent = "The browser did not allow copying.";
    }
  }

  // In a form of the same model, a variation runs in place.
  function vary(event) {
    const run = document.getElementById("run");
    const seed = document.getElementById("in-seed");
    event.target.csrf.value ||= document.body.dataset.csrf ?? "";
    if (run?.dataset.model !== event.target.dataset.vary || !seed) return;
    event.preventDefault();
    const [low, high] = [Number(seed.min || 0), Math.min(Number(seed.max || 2147483647), 2147483647)];
    seed.value = String(low + Math.floor(Math.random() * (high - low + 1)));
    seed.dispatchEvent(new Event("input", { bubbles: true }));
    run.requestSubmit();
  }

  // A form of the same model runs again with what it has now.
  function again(event) {
    const run = document.getElementById("run");
    event.target.csrf.value ||= document.body.dataset.csrf ?? "";
    if (run?.dataset.model !== event.target.dataset.again) return;
    event.preventDefault();
    run.requestSubmit();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    for (const menu of document.querySelectorAll("details.pop[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector("details.pop[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.vary !== undefined) vary(event);
    if (event.target.dataset.again !== undefined) again(event);
  });
  new MutationObserver((changes) => {
    if (changes.some((change) => change.addedNodes.length)) prepare(document.getElementById("result"));
  }).observe(document.getElementById("result"), { childList: true });
  prepare(document);
})();
