"use strict";
// Completion of links and tags in the editor of the memory, and drafts: texts that were not saved, kept in this
// browser and offered when the editor of their page is opened again.
const DRAFT = "memory-draft:", SAVED = "memory-saved", DRAFT_DAYS = 30, MAX_DRAFTS = 20;
const FIELDS = ["slug", "title", "type", "tags", "collections", "body"];

// -- drafts -----------------------------------------------------------------------------------

function readDraft(key) {
  try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }
}

function pruneDrafts(account) {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(DRAFT));
  const since = Date.now() - DRAFT_DAYS * 86_400_000;
  const own = keys.filter((key) => key.startsWith(`${DRAFT}${account}:`) && (readDraft(key)?.at ?? 0) > since);
  const newest = own.sort((one, other) => readDraft(other).at - readDraft(one).at).slice(0, MAX_DRAFTS);
  for (const key of keys) if (!newest.includes(key)) localStorage.removeItem(key);
}

function initDrafts(form) {
  const key = `${DRAFT}${form.dataset.account}:${form.getAttribute("action")}`;
  const content = () => Object.fromEntries(
    FIELDS.filter((name) => form.elements[name]).map((name) => [name, form.elements[name].value]));
  const initial = JSON.stringify(content()), version = form.elements.version;
  let timer = 0, leaving = false;
  function save() {
    clearTimeout(timer);
    const fields = content();
    if (leaving) return;
    if (JSON.stringify(fields) === initial) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify({ at: Date.now(), version: version?.value ?? "", fields }));
  }
  function offer(draft) {
    const banner = document.querySelector("#draft");
    const time = new Date(draft.at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    banner.querySelector("time").textContent = time;
    banner.hidden = false;
    banner.querySelector("[data-draft=restore]").addEventListener("click", () => {
      for (const [name, value] of Object.entries(draft.fields)) if (form.elements[name]) form.elements[name].value = value;
      // Saving a draft of an older version merges it with the changes since.
      if (version && draft.version) version.value = draft.version;
      banner.hidden = true;
      form.elements.body.focus();
      form.elements.body.dispatchEvent(new Event("input", { bubbles: true }));
    });
    banner.querySelector("[data-draft=discard]").addEventListener("click", () => {
      localStorage.removeItem(key);
      banner.hidden = true;
      form.elements.body.focus();
    });
  }
  try {
    pruneDrafts(form.dataset.account);
    const draft = readDraft(key), sent = sessionStorage.getItem(SAVED) === key;
    sessionStorage.removeItem(SAVED);
    // A form that came back has the text of the draft already.
    if (draft && !sent && JSON.stringify(draft.fields) !== initial) offer(draft);
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(save, 300); });
    addEventListener("pagehide", () => { if (timer) save(); });
    form.addEventListener("submit", () => { save(); leaving = true; sessionStorage.setItem(SAVED, key); });
    form.dataset.drafts = "kept";
  } catch { /* without storage, the browser asks before the page is left */ }
}

// -- completion -------------------------------------------------------------------------------

const OPEN = [
  { kind: "pages", pattern: /\[\[([^[\]|#\n]{0,100})$/, insert: (name) => `[[${name}]]`, start: 2 },
  { kind: "tags", pattern: /(?<=^|\s)#([\p{L}\p{N}_/-]{1,100})$/u, insert: (name) => `#${name} `, start: 1 },
];

function caretPosition(text, at) {
  const mirror = document.createElement("div"), style = getComputedStyle(text);
  for (const name of ["font", "letterSpacing", "padding", "border", "tabSize", "lineHeight", "boxSizing", "width"]) {
    mirror.style[name] = style[name];
  }
  Object.assign(mirror.style, { position: "absolute", visibility: "hidden", whiteSpace: "pre-wrap", overflowWrap: "break-word" });
  mirror.textContent = text.value.slice(0, at);
  const mark = mirror.appendChild(document.createElement("span"));
  mark.textContent = "|";
  text.parentElement.append(mirror);
  const place = { x: mark.offsetLeft, y: mark.offsetTop + mark.offsetHeight - text.scrollTop };
  mirror.remove();
  return place;
}

function initCompletion(text) {
  const list = document.querySelector("#completions");
  let open = null, active = 0, timer = 0, request = null;
  function close() {
    clearTimeout(timer);
    request?.abort();
    open = null;
    list.hidden = true;
    text.removeAttribute("aria-activedescendant");
  }
  function find() {
    if (text.selectionStart !== text.selectionEnd) return null;
    const before = text.value.slice(Math.max(0, text.selectionStart - 110), text.selectionStart);
    for (const each of OPEN) {
      const match = each.pattern.exec(before);
      if (match) return { ...each, query: match[1], from: text.selectionStart - match[1].length - each.start };
    }
    return null;
  }
  function activate(index) {
    const options = [...list.children];
    active = (index + options.length) % options.length;
    options.forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    text.setAttribute("aria-activedescendant", options[active].id);
    options[active].scrollIntoView({ block: "nearest" });
  }
  function show(entries) {
    list.replaceChildren(...entries.map((entry, at) => {
      const option = document.createElement("li");
      Object.assign(option, { id: `completion-${at}`, role: "option" });
      option.dataset.name = entry.name;
      const title = option.appendChild(document.createElement("span"));
      title.textContent = entry.title;
      const note = option.appendChild(document.createElement("small"));
      note.textContent = entry.note;
      return option;
    }));
    const place = caretPosition(text, text.selectionStart);
    list.hidden = false;
    const most = text.offsetLeft + text.offsetWidth - list.offsetWidth;
    list.style.left = `${Math.max(0, Math.min(text.offsetLeft + place.x, most))}px`;
    list.style.top = `${text.offsetTop + Math.min(place.y, text.offsetHeight)}px`;
    activate(0);
  }
  async function update() {
    const found = find();
    if (!found) { close(); return; }
    request?.abort();
    request = new AbortController();
    try {
      const query = new URLSearchParams({ kind: found.kind, q: found.query });
      const response = await fetch(`${text.form.dataset.memory}/~complete?${query}`, { signal: request.signal });
      const { entries } = await response.json();
      if (!response.ok || !entries.length) { close(); return; }
      open = found;
      show(entries);
    } catch { /* a later request answers, or the server is away */ }
  }
  function choose(option) {
    const end = text.selectionStart + (text.value.startsWith("]]", text.selectionStart) && open.kind === "pages" ? 2 : 0);
    const insert = open.insert(option.dataset.name);
    text.setSelectionRange(open.from, end);
    // This command keeps the history of undo.
    if (!document.execCommand("insertText", false, insert)) text.setRangeText(insert, open.from, end, "end");
    close();
  }
  // The link or tag at the cursor, if the list belongs to it: the text may have changed since, or the cursor moved.
  function current() {
    const found = open && find();
    return found && found.kind === open.kind && found.from === open.from ? found : null;
  }
  text.addEventListener("input", () => {
    if (open && !current()) close();
    clearTimeout(timer);
    timer = setTimeout(update, 60);
  });
  text.addEventListener("blur", close);
  text.addEventListener("scroll", close);
  text.addEventListener("keydown", (event) => {
    if (!open || list.hidden) return;
    const found = current();
    if (!found) { close(); return; }
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) activate(active + move);
    else if (event.key === "Enter" || event.key === "Tab") {
      const option = list.children[active];
      // An entry for an earlier text is chosen only if it contains the present one.
      if (found.query !== open.query && !option.textContent.toLowerCase().includes(found.query.trim().toLowerCase())) { close(); return; }
      choose(option);
    }
    else if (event.key === "Escape") close();
    else { if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") close(); return; }
    event.preventDefault();
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) choose(option);
  });
}

const form = document.querySelector("#editor");
initDrafts(form);
initCompletion(form.elements.body);
