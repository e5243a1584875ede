"use strict";
// Opens the form for sharing as a dialog; without this script it is a page of its own.
(() => {
  if (!window.HTMLDialogElement) return;
  let dialog = null;

  // Shows the form in the page that a request returned; false if it has none.
  async function show(response) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const form = page.querySelector("[data-share-form]") ?? page.querySelector("main > section");
    if (!form) return false;
    const close = document.createElement("button");
    [close.type, close.className, close.textContent] = ["button", "quiet close", "Close"];
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(document.importNode(form, true), close);
    prepare(dialog);
    return true;
  }

  function prepare(container) {
    for (const button of container.querySelectorAll("[data-copy-link]")) button.hidden = false;
    const link = container.querySelector("#share-link");
    link?.focus();
    link?.select();
    if (container.querySelector("[role=alert]")) container.querySelector("[name=with]")?.focus();
  }

  async function open(link) {
    dialog ??= document.body.appendChild(Object.assign(document.createElement("dialog"), { className: "share-dialog" }));
    dialog.setAttribute("aria-label", "Share");
    try {
      const response = await fetch(link.href);
      if (response.redirected || !response.ok || !(await show(response))) throw new Error(response.statusText);
      dialog.showModal();
    } catch {
      location.href = link.href;
    }
  }

  async function send(form) {
    const buttons = form.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      await show(await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) }));
    } catch {
      for (const button of buttons) button.disabled = false;
      connection.check();
      const problem = form.querySelector(".problem") ?? form.appendChild(Object.assign(document.createElement("p"), { className: "problem", role: "alert" }));
      connection.show(problem, connection.UNREACHABLE, { title: "Try again", act: () => send(form) });
    }
  }

  async function copy(button) {
    const note = button.closest("[data-share-form]").querySelector("[data-copied-link]");
    try {
      await connection.copy(document.getElementById("share-link").value);
      note.textContent = "Copied";
    } catch {
      note.textContent = "The browser did not allow copying.";
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy-link]");
    if (button) copy(button);
    const link = event.target.closest("a[data-share]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(link);
  });
  document.addEventListener("submit", (event) => {
    if (!dialog?.contains(event.target)) return;
    event.preventDefault();
    send(event.target);
  });
  prepare(document);
})();
