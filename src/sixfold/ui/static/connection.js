"use strict";
// What all scripts share when a request fails or the connection is lost: an error in plain words, with the next
// step as a button, and one line at the top of the page until the server answers again.
window.connection = (() => {
  const PING_MS = 4000, PATIENCE_MS = 4000, RETRY_MS = 2000, RECOVERED_MS = 5000;
  const DRAFT = "draft:";
  const create = (name, properties) => Object.assign(document.createElement(name), properties);
  const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

  // -- errors and their next steps --------------------------------------------------------------------

  // Texts that were typed survive the sign-in page.
  const DRAFTS = "main :is(textarea, select, input:not([type=hidden], [type=password], [type=file], [type=search], [type=radio]))";
  const isSwitch = (control) => control.type === "checkbox";
  // Controls by a name: their id, or the address of their form, their name and their place among others of it.
  function controls() {
    const places = new Map();
    return [...document.querySelectorAll(DRAFTS)].map((control) => {
      const name = control.id || `${control.form?.getAttribute("action")} ${control.name}`;
      places.set(name, (places.get(name) ?? 0) + 1);
      return [`${name} ${places.get(name)}`, control];
    });
  }
  const valuesOf = (named) => JSON.stringify(named.map(([name, each]) => [name, isSwitch(each) ? each.checked : each.value]));
  const keep = (name, text) => { try { sessionStorage.setItem(name, text); } catch { /* the storage is full */ } };
  const saveDraft = () => keep(DRAFT + location.pathname, valuesOf(controls()));

  function restoreDraft() {
    const draft = sessionStorage.getItem(DRAFT + location.pathname);
    if (!draft || !document.body.dataset.csrf) return;
    sessionStorage.removeItem(DRAFT + location.pathname);
    const values = new Map(JSON.parse(draft));
    for (const [name, control] of controls()) {
      const value = values.get(name);
      if (value === undefined) continue;
      if (isSwitch(control)) control.checked = value;
      else control.value = value;
    }
  }

  // A form that requires a recent sign-in is answered with the sign-in page: then what was sent becomes a draft.
  const SENT = "sent-form";
  function keepSent() {
    const sent = JSON.parse(sessionStorage.getItem(SENT) ?? "null");
    sessionStorage.removeItem(SENT);
    if (sent && location.pathname === "/signin" && new URLSearchParams(location.search).has("again")) keep(DRAFT + sent.path, sent.values);
  }

  const signIn = () => ({ title: "Sign in again", href: `/signin?next=${encodeURIComponent(location.pathname + location.search)}`, act: saveDraft });
  const UNREACHABLE = { error: "Can't reach the server.", retry: true };

  const textOf = (page) => [...page.querySelectorAll("h1, .advice")].map((part) => part.textContent).join("; ");

  // The document of an error response; errors that are pages have their text in the heading and the advice.
  function parse(status, type, text) {
    let data = {};
    try {
      data = type?.includes("json") ? JSON.parse(text) : { error: textOf(new DOMParser().parseFromString(text, "text/html")) };
    } catch { /* cut off */ }
    data.error ||= `The server answered with status ${status}.`;
    if (status === 401 && document.body.dataset.csrf) return { ...data, error: "Your session has ended. What you typed is kept.", action: signIn() };
    if (status === 402) return { action: { title: "Get credit", href: "/account/billing#credit" }, ...data };
    return { retry: status === 429 || status >= 500, ...data };
  }

  // Resolves with ok, status (0 if no response came) and data. A request is never given up: if no response comes
  // for a while, the line at the top says whether the server can be reached.
  async function request(path, options = {}) {
    const slow = setTimeout(check, PATIENCE_MS);
    try {
      const response = await fetch(path, options);
      const [type, text] = [response.headers.get("content-type"), await response.text()];
      if (!response.ok) return { ok: false, status: response.status, data: parse(response.status, type, text) };
      return { ok: true, status: response.status, data: JSON.parse(text) };
    } catch (error) {
      if (error.name === "AbortError") throw error;
      check();
      return { ok: false, status: 0, data: { ...UNREACHABLE } };
    } finally {
      clearTimeout(slow);
    }
  }

  function stepButton({ title, href, act }) {
    const step = href ? create("a", { href }) : create("button", { type: "button" });
    step.className = "step";
    step.textContent = title;
    if (act) step.addEventListener("click", act);
    return step;
  }

  // Shows an error with its steps, {title, href} or {title, act}; hides the element without one.
  function show(element, data, ...steps) {
    element.hidden = !data?.error;
    element.replaceChildren();
    if (!data?.error) return;
    element.append(data.error);
    for (const step of [data.action, ...steps]) if (step) element.append(" ", stepButton(step));
  }

  // -- the connection -----------------------------------------------------------------------------------

  const bar = create("p", { className: "connection" });
  bar.setAttribute("role", "status");
  document.body.append(bar);
  let [isLost, watchers, timer, polling] = [false, 0, 0, false];

  const tell = (name) => document.dispatchEvent(new CustomEvent(`connection-${name}`));

  async function ping() {
    try {
      return (await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) })).ok;
    } catch {
      return false;
    }
  }

  async function check() {
    if (!isLost && !(await ping())) lose();
  }

  function recover() {
    if (!isLost) return;
    isLost = false;
    bar.className = "connection back";
    bar.textContent = "Connected again.";
    setTimeout(() => { if (!isLost) bar.textContent = ""; }, RECOVERED_MS);
    tell("back");
  }

  function lose() {
    if (isLost) return;
    isLost = true;
    bar.className = "connection";
    bar.textContent = "Connection lost. Reconnecting … ";
    bar.append(stepButton({ title: "Try now", act: async () => { if (await ping()) recover(); } }));
    tell("lost");
    poll();
  }

  async function poll() {
    if (polling) return;
    polling = true;
    while (isLost) {
      await wait(RETRY_MS);
      if (isLost && await ping()) recover();
    }
    polling = false;
  }

  // Asks the server every few seconds until the returned function is called: streams do not notice a server
  // that is silent.
  function watch() {
    let isActive = true;
    if (!watchers++) timer = setInterval(check, PING_MS);
    return () => {
      if (isActive && !--watchers) clearInterval(timer);
      isActive = false;
    };
  }

  // -- event streams ------------------------------------------------------------------------------------

  // Why a stream cannot be opened, if trying again is useless.
  async function refusal(url) {
    const abort = new AbortController();
    try {
      const response = await fetch(url, { signal: abort.signal });
      if (![401, 403, 404, 410].includes(response.status)) return null;
      return parse(response.status, response.headers.get("content-type"), await response.text());
    } catch {
      return null;
    } finally {
      abort.abort();
    }
  }

  // Opens an event stream again for as long as it takes; `gone` gets the error of one that no longer exists.
  function stream(url, handlers, { lost, back, gone } = {}) {
    let [events, retry, isOver, isBroken] = [null, 0, false, false];
    const unwatch = watch();
    function broken() {
      if (isOver || isBroken) return;
      isBroken = true;
      lost?.();
      check();
    }
    function connect() {
      clearTimeout(retry);
      events?.close();
      const current = events = new EventSource(url);
      current.addEventListener("open", () => { if (isBroken) back?.(); isBroken = false; });
      for (const [name, handle] of Object.entries(handlers)) current.addEventListener(name, (event) => handle(JSON.parse(event.data)));
      current.addEventListener("error", async () => {
        if (isOver || current !== events) return;
        const isClosed = current.readyState === EventSource.CLOSED; // not after a response that is no stream
        const data = isClosed ? await refusal(url) : null;
        if (isOver || current !== events) return;
        if (data) { close(); gone?.(data); return; }
        broken();
        if (isClosed) retry = setTimeout(connect, RETRY_MS);
      });
    }
    function close() {
      isOver = true;
      clearTimeout(retry);
      events.close();
      unwatch();
      document.removeEventListener("connection-lost", broken);
      document.removeEventListener("connection-back", connect);
    }
    document.addEventListener("connection-lost", broken);
    document.addEventListener("connection-back", connect);
    connect();
    return { close };
  }

  document.addEventListener("click", ({ target }) => { if (target.closest?.("[data-keep-draft]")) saveDraft(); });
  // Images that failed to load while the connection was lost are loaded again.
  document.addEventListener("connection-back", () => {
    for (const image of document.images) if (image.complete && !image.naturalWidth) image.src = image.src; // eslint-disable-line no-self-assign
  });
  addEventListener("offline", lose);
  addEventListener("online", async () => { if (await ping()) recover(); });
  document.addEventListener("submit", ({ target, defaultPrevented }) => {
    if (defaultPrevented || target.method !== "post") return;
    keep(SENT, JSON.stringify({ path: location.pathname, values: valuesOf(controls().filter(([, { form }]) => form === target)) }));
  });
  keepSent();
  restoreDraft();
  // The balance at the top of the page, as the server rendered it after a charge.
  function balance(data) {
    const element = document.getElementById("balance");
    if (element && data.balance) element.innerHTML = data.balance;
  }

  // Browsers offer their clipboard to https and to this machine only: on other addresses a selected text is copied.
  async function copy(text) {
    if (navigator.clipboard?.writeText) return navigator.clipboard.writeText(text);
    const focused = document.activeElement;
    const area = create("textarea", { value: text, readOnly: true, className: "hidden" });
    (focused.closest("dialog") ?? document.body).append(area);
    area.focus({ preventScroll: true });
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    focused.focus({ preventScroll: true });
    if (!isCopied) throw new Error("The browser did not allow copying.");
  }

  return { request, parse, show, stream, watch, check, balance, copy, UNREACHABLE };
})();
