"use strict";
// Ctrl+K, or the button at the top, opens one search over everything of the account. Without this script the
// button leads to the page /find.
(() => {
  const opener = document.getElementById("find");
  if (!opener || !window.HTMLDialogElement) return;
  const DELAY_MS = 90;
  let dialog, input, list, status, request, timer, active = -1;
  let isOutdated = false, opening = null; // results of an earlier text, and the Enter that waits for newer ones

  const create = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const options = () => [...list.querySelectorAll("[role=option]")];

  function build() {
    input = create("input", { type: "text", id: "palette-q", maxLength: 100, autocomplete: "off", spellcheck: false, placeholder: "Models, pages, runs, chats, settings, guides", role: "combobox" });
    for (const [name, value] of [["aria-label", "Find"], ["aria-controls", "palette-list"], ["aria-expanded", "true"], ["aria-autocomplete", "list"]]) input.setAttribute(name, value);
    list = create("div", { id: "palette-list", role: "listbox" });
    list.setAttribute("aria-label", "Results");
    status = create("p", { role: "status", textContent: "Searching …" });
    const close = create("button", { type: "button", className: "link", textContent: "Close" });
    dialog = create("dialog", { className: "palette" }, create("div", { className: "field-line" }, input, close), list, status);
    dialog.setAttribute("aria-label", "Find");
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => request?.abort());
    input.addEventListener("input", () => {
      // The response to the earlier text must not be taken for the response to this one.
      request?.abort();
      isOutdated = true;
      opening = null;
      clearTimeout(timer);
      timer = setTimeout(search, DELAY_MS);
    });
    input.addEventListener("keydown", pressed);
    list.addEventListener("click", (event) => { const option = event.target.closest("[role=option]"); if (option) go(option, event); });
    list.addEventListener("pointermove", (event) => {
      const at = options().indexOf(event.target.closest("[role=option]"));
      if (at >= 0 && at !== active) select(at, false);
    });
    document.body.append(dialog);
  }

  function open() {
    if (!dialog) build();
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    search();
  }

  function select(at, scroll = true) {
    const all = options();
    active = all.length ? (at + all.length) % all.length : -1;
    all.forEach((option, index) => option.setAttribute("aria-selected", String(index === active)));
    if (active < 0) { input.removeAttribute("aria-activedescendant"); return; }
    input.setAttribute("aria-activedescendant", all[active].id);
    if (scroll) all[active].scrollIntoView({ block: "nearest" });
  }

  function go(option, event) {
    if (event.ctrlKey || event.metaKey) window.open(option.dataset.href, "_blank", "noopener");
    else location.assign(option.dataset.href);
    dialog.close();
  }

  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) select(active < 0 && step < 0 ? -1 : active + step);
    else if (event.key === "Enter" && isOutdated) opening = event;
    else if (event.key === "Enter" && active >= 0) go(options()[active], event);
    else return;
    event.preventDefault();
  }

  function show(groups) {
    let number = 0;
    list.replaceChildren(...groups.map((group, index) => {
      const heading = create("div", { id: `palette-group-${index}`, textContent: group.title });
      const entries = group.entries.map((entry) => {
        const option = create("div", { role: "option", id: `palette-option-${number++}` }, entry.title);
        option.dataset.href = entry.href;
        if (entry.note) option.append(create("small", { textContent: entry.note }));
        return option;
      });
      const box = create("div", { role: "group" }, heading, ...entries);
      box.setAttribute("aria-labelledby", heading.id);
      return box;
    }));
    list.hidden = !number;
    status.textContent = number ? `${number} ${number === 1 ? "result" : "results"}` : "No matches. Try another word.";
    if (number) status.append(create("span", { className: "keys", textContent: " · ↑ ↓ to choose, Enter to open, Escape to close" }));
    list.scrollTop = 0;
    select(0);
    isOutdated = false;
    const event = opening;
    opening = null;
    if (event && active >= 0) go(options()[active], event);
  }

  async function search() {
    request?.abort();
    request = new AbortController();
    try {
      const { ok, data } = await connection.request(`/pages/find?q=${encodeURIComponent(input.value.trim())}`, { signal: request.signal });
      if (ok) show(data.groups);
      else { isOutdated = false; connection.show(status, data, data.retry && { title: "Try again", act: search }); }
    } catch { /* another search has begun */ }
  }

  opener.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open();
  });
})();
