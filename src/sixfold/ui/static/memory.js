"use strict";
// The memory's pages work without this script. It adds search while typing, a preview beside the editor, and
// buttons that choose a side of a conflict. The server escapes the HTML that it inserts.
const one = (selector) => document.querySelector(selector);

function debounce(action, ms) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, ms); };
}

function replaceContent(container, text) {
  container.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
}

// -- search while typing ----------------------------------------------------------------------

function initSearch(form) {
  const input = form.elements.q, results = one("#results"), lists = one("#lists");
  const title = document.title, path = form.getAttribute("action");
  let request = null;
  function fail(data) {
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    results.replaceChildren(problem);
    connection.show(problem, data, data.retry && { title: "Try again", act: search });
  }
  async function search() {
    request?.abort();
    const query = new URLSearchParams(new FormData(form));
    if (!input.value.trim()) query.delete("q");
    const url = query.size ? `${path}?${query}` : path;
    history.replaceState(null, "", url);
    results.hidden = !query.has("q");
    lists.hidden = query.has("q");
    if (!query.has("q")) { results.replaceChildren(); document.title = title; return; }
    request = new AbortController();
    form.classList.add("busy");
    try {
      const response = await fetch(`${path}/~results?${query}`, { signal: request.signal });
      const text = await response.text();
      if (response.ok) replaceContent(results, text);
      else fail(connection.parse(response.status, response.headers.get("content-type"), text));
    } catch (error) {
      if (error.name === "AbortError") return;
      connection.check();
      fail(connection.UNREACHABLE);
    }
    form.classList.remove("busy");
  }
  input.addEventListener("input", debounce(search, 70));
  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll("h2 a")];
    const at = links.indexOf(document.activeElement);
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing) { event.preventDefault(); input.select(); }
    else if (event.key === "ArrowDown" && (document.activeElement === input || at >= 0)) {
      if (links[at + 1]) { event.preventDefault(); links[at + 1].focus(); }
    } else if (event.key === "ArrowUp" && at >= 0) { event.preventDefault(); (links[at - 1] ?? input).focus(); }
    else if (event.key === "Escape" && at >= 0) input.focus();
  });
}

// -- tasks --------------------------------------------------------------------------------------

function initTasks(form) {
  // The page of the response replaces the text, so that the numbers of lines are those of its version.
  document.querySelector(".prose")?.addEventListener("click", async (event) => {
    const button = event.target.closest("button.task");
    if (!button) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form));
    body.set("task", button.value);
    button.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(form.action, { method: "POST", body });
      const changed = new DOMParser().parseFromString(await response.text(), "text/html");
      if (!response.ok || !changed.querySelector("#tasks")) throw new Error(response.status);
      one(".prose").replaceChildren(...changed.querySelector(".prose").childNodes);
      form.elements.version.value = changed.querySelector("#tasks [name=version]").value;
      one(`button.task[value="${button.value}"]`)?.focus();
    } catch { location.reload(); }
  });
}

// -- the editor -------------------------------------------------------------------------------

function initEditor(form) {
  const text = form.elements.body, preview = one("#preview");
  const initial = new URLSearchParams(new FormData(form)).toString();
  const merging = form.elements.merging !== undefined;
  let request = null, leaving = false;
  async function show() {
    request?.abort();
    request = new AbortController();
    const body = new URLSearchParams();
    for (const name of ["csrf", "slug", "title", "body"]) if (form.elements[name]) body.set(name, form.elements[name].value);
    if (!body.has("slug")) body.set("slug", decodeURI(form.getAttribute("action").slice(form.dataset.memory.length + 1).replace("/~edit", "")));
    try {
      const response = await fetch(`${form.dataset.memory}/~preview`, { method: "POST", body, signal: request.signal });
      if (!response.ok) return;
      const top = preview.scrollTop;
      replaceContent(preview, await response.text());
      preview.scrollTop = top;
    } catch { /* keep the previous preview */ }
  }
  const updateSoon = debounce(show, 150);
  form.addEventListener("input", updateSoon);
  form.addEventListener("click", (event) => {
    if (event.target.value === "preview") { event.preventDefault(); show(); preview.focus(); }
  });
  form.addEventListener("submit", () => { leaving = true; });
  addEventListener("beforeunload", (event) => {
    const dirty = merging || new URLSearchParams(new FormData(form)).toString() !== initial;
    const kept = form.dataset.drafts && !merging;
    if (dirty && !leaving && !kept) event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      form.requestSubmit(form.querySelector("[value=save]"));
    }
  });
  for (const conflict of document.querySelectorAll(".conflict")) initConflict(conflict, text, updateSoon);
  show();
}

function initConflict(conflict, text, changed) {
  const { mine, theirs } = conflict.dataset;
  const markers = `<<<<<<< yours\n${mine}=======\n${theirs}>>>>>>> theirs\n`;
  const sides = { mine, theirs, both: mine + theirs };
  let current = markers;
  for (const button of conflict.querySelectorAll("button")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const choice = sides[button.dataset.take];
      const at = text.value.indexOf(current);
      if (current !== markers || at < 0) return;
      text.setRangeText(choice, at, at + current.length, "select");
      current = choice;
      conflict.classList.add("resolved");
      const counter = one("#settled");
      counter.dataset.settled = Number(counter.dataset.settled) + 1;
      counter.textContent = `${counter.dataset.settled} of ${counter.dataset.total} settled`;
      for (const other of conflict.querySelectorAll("button")) other.disabled = true;
      (one(".conflict:not(.resolved) button") ?? text).focus();
      changed();
    });
  }
}

// The page that follows a saved form has no editor.
try {
  const saved = sessionStorage.getItem("memory-saved");
  if (saved && !one("#editor")) { localStorage.removeItem(saved); sessionStorage.removeItem("memory-saved"); }
} catch { /* without storage there are no drafts */ }

const search = one("#search"), editor = one("#editor"), tasks = one("#tasks");
if (tasks) initTasks(tasks);
if (search) initSearch(search);
if (editor) initEditor(editor);
