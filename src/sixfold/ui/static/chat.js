"use strict";
// The chat page: sends messages, shows answers while they are written, and keeps the end in view.
(() => {
  const byId = (id) => document.getElementById(id);
  const thread = document.querySelector(".thread"), composer = byId("composer"), last = byId("last"), messages = byId("messages");
  if (!composer) return;
  const text = byId("text"), files = byId("file"), chosen = byId("chosen"), problem = byId("problem"), send = byId("send"), latest = byId("latest");
  const stopButton = byId("stop-button"), csrf = composer.elements.csrf.value;
  const headers = { Accept: "application/json", "X-CSRF-Token": csrf };
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  if (matchMedia("(min-width: 56rem)").matches) document.querySelector(".threads .list")?.setAttribute("open", "");

  // -- the end of the page, which is kept in view unless the reader has scrolled away from it --------

  let follow = !location.search;
  const page = document.scrollingElement;
  const atEnd = () => page.scrollHeight - page.scrollTop - innerHeight < 120;
  let position = page.scrollTop;
  // Content that grows before the event is dispatched moves the end, which is no choice of the reader.
  addEventListener("scroll", () => {
    follow = atEnd() || (follow && page.scrollTop >= position);
    position = page.scrollTop;
    latest.hidden = page.scrollHeight - page.scrollTop < 2 * innerHeight;
  }, { passive: true });
  const toEnd = () => {
    if (!follow) return;
    page.scrollTop = page.scrollHeight;
    position = page.scrollTop;
  };
  latest.addEventListener("click", () => {
    follow = true;
    toEnd();
    requestAnimationFrame(toEnd); // heights of messages are estimates until they are in view
    text.focus({ preventScroll: true });
  });
  addEventListener("resize", toEnd);
  // An image has its height when it is there.
  last.addEventListener("load", toEnd, { capture: true });

  function setBusy(busy) {
    composer.toggleAttribute("data-busy", busy);
    if (stopButton) stopButton.hidden = !busy;
    send.disabled = busy;
  }

  // -- an answer that is being written ----------------------------------------------------------------

  const skeleton = `<article class="message answer" id="active" aria-labelledby="h-active">
    <h2 class="hidden" id="h-active">Answer</h2><div class="content" data-blocks></div><div class="content" data-growing></div>
    <p class="open" data-open></p><p class="note" data-status>Waiting for the model …</p></article>`;

  function listen() {
    if (!byId("active")) last.innerHTML = skeleton;
    const active = byId("active"), part = (name) => active.querySelector(`[data-${name}]`);
    const blocks = part("blocks"), growing = part("growing"), status = part("status");
    let open = part("open");
    const handlers = {}, on = (name, handle) => { handlers[name] = (data) => { handle(data); toEnd(); }; };
    let tail = null;
    setBusy(true);
    // A connection, also a new one after a loss, begins with all that there is.
    on("begin", () => { blocks.replaceChildren(); growing.replaceChildren(); open.textContent = ""; tail = null; status.textContent = "Waiting for the model …"; });
    on("status", (data) => { status.textContent = data.text; });
    on("text", (data) => {
      status.textContent = "";
      if (tail) tail.appendData(data.text);
      else open.append(tail = document.createTextNode(data.text));
    });
    on("block", (data) => {
      if (data.html || data.open) status.textContent = "";
      if (data.html) blocks.insertAdjacentHTML("beforeend", data.html);
      growing.innerHTML = data.growing;
      // Another text, in an element of its own: it has not moved from the place of the previous one.
      const next = open.cloneNode();
      next.append(tail = document.createTextNode(data.open));
      open.replaceWith(next);
      open = next;
    });
    on("end", (data) => {
      events.close();
      active.outerHTML = data.html;
      for (const button of last.querySelectorAll("[data-copy]")) button.hidden = false;
      if (byId("total")) byId("total").textContent = data.total;
      const answer = last.querySelector(".content");
      byId("spoken").textContent = answer ? `Answer: ${answer.textContent.slice(0, 1000)}` : "No answer";
      const stopped = stopButton?.matches(":focus-visible");
      connection.balance(data);
      setBusy(false);
      if (stopped) text.focus();
    });
    const events = connection.stream(`/chat/${thread.dataset.chat}/events`, handlers, {
      lost: () => { status.textContent = "Connection lost. The answer continues on the server; reconnecting …"; },
      gone: (data) => { status.textContent = ""; setBusy(false); connection.show(problem, data); },
    });
  }

  // -- sending ----------------------------------------------------------------------------------------

  async function ask(action, body, again) {
    setBusy(true);
    connection.show(problem);
    const { ok, data } = await connection.request(action, { method: "POST", headers, body });
    if (!ok) {
      setBusy(false);
      const wrongFile = files.files.length && !data.retry && !data.action && { title: "Choose another file", act: () => files.click() };
      connection.show(problem, { ...data, error: `${data.error} Your message is still here.` }, data.retry && { title: "Try again", act: again }, wrongFile);
      return false;
    }
    if (!data.html) {
      location.assign(data.location);
      return true;
    }
    follow = true;
    messages.append(...last.childNodes);
    messages.insertAdjacentHTML("beforeend", data.html);
    listen();
    toEnd();
    return true;
  }

  composer.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (composer.hasAttribute("data-busy")) return;
    if (!text.value.trim() && !files.files.length) return text.focus();
    const sent = text.value, attached = [...files.files];
    if (await ask(composer.action, new FormData(composer), () => composer.requestSubmit(send))) {
      // What was written or chosen meanwhile stays.
      if (text.value === sent) text.value = "";
      choose([...files.files].filter((file) => !attached.includes(file)));
      text.focus();
    }
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    composer.requestSubmit(send);
  });

  document.querySelector(".starters")?.addEventListener("click", (event) => {
    const link = event.target.closest("[data-starter]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    text.value = link.dataset.starter;
    text.focus();
  });

  // -- files ------------------------------------------------------------------------------------------

  function list() {
    chosen.hidden = !files.files.length;
    chosen.replaceChildren(...[...files.files].map((file, index) => {
      const remove = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: "Remove" });
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => choose([...files.files].filter((_, each) => each !== index)));
      const item = document.createElement("li");
      item.append(`${file.name} `, remove);
      return item;
    }));
  }

  function choose(wanted) {
    const transfer = new DataTransfer();
    for (const file of wanted) transfer.items.add(file);
    files.files = transfer.files;
    list();
  }

  files.addEventListener("change", list);
  text.addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files];
    if (!pasted.length) return;
    event.preventDefault();
    choose([...files.files, ...pasted]);
  });
  // Files dropped here are attached; elsewhere a dropped file opens its form.
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    choose([...files.files, ...event.dataTransfer.files]);
  }, { capture: true });

  // -- the buttons of messages ------------------------------------------------------------------------

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.id === "stop") {
      event.preventDefault();
      if (stopButton.ariaBusy) return;
      // A disabled button would lose the focus.
      stopButton.ariaBusy = "true";
      await fetch(form.action, { method: "POST", headers: { ...headers, "Content-Type": "application/x-www-form-urlencoded" }, body: "" }).catch(() => {});
      stopButton.ariaBusy = null;
    } else if (form.id === "again") {
      event.preventDefault();
      const body = new URLSearchParams({ item: event.submitter.value, model: byId("model").value });
      const failure = last.querySelector(".problem")?.closest("article");
      if (await ask(form.action, body, () => form.requestSubmit(event.submitter))) failure?.remove();
    }
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const isCopied = await connection.copy(button.closest(".answer").querySelector(".content").innerText).then(() => true, () => false);
    button.textContent = isCopied ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  byId("earlier")?.addEventListener("click", async (event) => {
    event.preventDefault();
    const link = event.currentTarget;
    if (link.ariaBusy) return;
    link.ariaBusy = "true";
    link.textContent = "Loading …";
    const response = await fetch(link.href).catch(() => null);
    if (!response?.ok) {
      link.textContent = "Earlier messages could not be loaded. Try again";
      link.ariaBusy = null;
      return;
    }
    const found = new DOMParser().parseFromString(await response.text(), "text/html");
    const next = found.getElementById("earlier"), articles = [...found.querySelectorAll("#messages > article")];
    // A few in each frame, from the last, so that the page stays responsive and in its place.
    while (articles.length) {
      const height = page.scrollHeight;
      link.closest("p").after(...articles.splice(-4).map((each) => document.adoptNode(each)));
      page.scrollTop += page.scrollHeight - height;
      await new Promise(requestAnimationFrame);
    }
    for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
    link.textContent = "Earlier messages";
    link.ariaBusy = null;
    if (next) link.href = next.getAttribute("href");
    else link.closest("p").remove();
  });

  if (byId("active")) listen();
  else setBusy(false);
  // Until the page is loaded, the fragment that shows the edited message takes the focus away.
  if (composer.elements.edited) addEventListener("load", () => requestAnimationFrame(() => {
    text.focus({ preventScroll: true });
    text.setSelectionRange(text.value.length, text.value.length);
  }));
  if (thread.dataset.chat && !location.search) {
    history.scrollRestoration = "manual"; // a reload would otherwise return to an earlier position
    requestAnimationFrame(() => { toEnd(); requestAnimationFrame(toEnd); });
  }
})();
