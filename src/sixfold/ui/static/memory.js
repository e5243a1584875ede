"use strict";
// The memory's pages work without this script. It adds search while typing, a preview beside the editor, and
// buttons that choose a side of a conflict. The server escapes the HTML that it inserts.
const one = (selector) => document.querySelector(selector);

function later(work, ms) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, ms); };
}

function put(place, text) {
  place.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
}

// -- search while typing ----------------------------------------------------------------------

function searching(form) {
  const box = form.elements.q, results = one("#results"), lists = one("#lists");
  const title = document.title;
  let asked = null;
  async function look() {
    asked?.abort();
    const query = new URLSearchParams(new FormData(form));
    if (!box.value.trim()) query.delete("q");
    const here = query.size ? `/memory?${query}` : "/memory";
    history.replaceState(null, "", here);
    results.hidden = !query.has("q");
    lists.hidden = query.has("q");
    if (!query.has("q")) { results.replaceChildren(); document.title = title; return; }
    asked = new AbortController();
    form.classList.add("busy");
    try {
      const answer = await fetch(`/memory/~results?${query}`, { signal: asked.signal });
      if (answer.status === 401) { location.assign("/signin"); return; }
      put(results, await answer.text());
    } catch (error) {
      if (error.name === "AbortError") return;
      put(results, "<p class='problem' role='alert'>The server does not answer.</p>");
    }
    form.classList.remove("busy");
  }
  box.addEventListener("input", later(look, 70));
  form.addEventListener("submit", (event) => { event.preventDefault(); look(); });
  addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll("h2 a")];
    const at = links.indexOf(document.activeElement);
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing) { event.preventDefault(); box.select(); }
    else if (event.key === "ArrowDown" && (document.activeElement === box || at >= 0)) {
      if (links[at + 1]) { event.preventDefault(); links[at + 1].focus(); }
    } else if (event.key === "ArrowUp" && at >= 0) { event.preventDefault(); (links[at - 1] ?? box).focus(); }
    else if (event.key === "Escape" && at >= 0) box.focus();
  });
}

// -- the editor -------------------------------------------------------------------------------

function writing(form) {
  const text = form.elements.body, place = one("#preview");
  const began = new URLSearchParams(new FormData(form)).toString();
  const merging = form.elements.merging !== undefined;
  let asked = null, leaving = false;
  async function show() {
    asked?.abort();
    asked = new AbortController();
    const body = new URLSearchParams();
    for (const name of ["csrf", "slug", "title", "body"]) if (form.elements[name]) body.set(name, form.elements[name].value);
    if (!body.has("slug")) body.set("slug", decodeURI(form.getAttribute("action").replace(/^.*\/memory\//, "").replace("/~edit", "")));
    try {
      const answer = await fetch(form.dataset.preview, { method: "POST", body, signal: asked.signal });
      if (!answer.ok) return;
      const top = place.scrollTop;
      put(place, await answer.text());
      place.scrollTop = top;
    } catch { /* keep the previous preview */ }
  }
  const soon = later(show, 150);
  form.addEventListener("input", soon);
  form.addEventListener("click", (event) => {
    if (event.target.value === "preview") { event.preventDefault(); show(); place.focus(); }
  });
  form.addEventListener("submit", () => { leaving = true; });
  addEventListener("beforeunload", (event) => {
    const dirty = merging || new URLSearchParams(new FormData(form)).toString() !== began;
    if (dirty && !leaving) event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      form.requestSubmit(form.querySelector("[value=save]"));
    }
  });
  for (const clash of document.querySelectorAll(".clash")) choosing(clash, text, soon);
  show();
}

function choosing(clash, text, changed) {
  const { mine, theirs } = clash.dataset;
  const marked = `<<<<<<< yours\n${mine}=======\n${theirs}>>>>>>> theirs\n`;
  const sides = { mine, theirs, both: mine + theirs };
  let standing = marked;
  for (const button of clash.querySelectorAll("button")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const chosen = sides[button.dataset.take];
      const at = text.value.indexOf(standing);
      if (standing !== marked || at < 0) return;
      text.setRangeText(chosen, at, at + standing.length, "select");
      standing = chosen;
      clash.classList.add("settled");
      for (const other of clash.querySelectorAll("button")) other.disabled = true;
      text.focus();
      changed();
    });
  }
}

const search = one("#search"), desk = one("#desk");
if (search) searching(search);
if (desk) writing(desk);
