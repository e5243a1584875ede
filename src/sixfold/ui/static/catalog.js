"use strict";
// The catalog's filter while typing. It finds what the server finds for `?q=`: each word of the search, or its
// singular, begins one of the words of a model.
(() => {
  const form = document.getElementById("filter"), input = document.getElementById("q");
  const shelves = document.getElementById("shelves"), nothing = document.getElementById("nothing"), matches = document.getElementById("matches");
  const filler = new Set(form.dataset.filler.split(" "));
  const MAX_WORDS = 12;
  let isWhole = !form.dataset.loaded; // the page of a search has only what it found

  const singular = (word) => (word.length > 3 && word.endsWith("s") && !word.endsWith("ss") ? word.slice(0, -1) : word);

  function queryWords() {
    const words = (input.value.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).slice(0, MAX_WORDS);
    const specific = words.filter((word) => !filler.has(word));
    return (specific.length ? specific : words).map(singular);
  }

  function isMatch(element, words) {
    const text = ` ${element.dataset.words}`;
    return words.every((word) => text.includes(` ${word}`));
  }

  // The numbers beside the kinds are those of the matches; a kind without a match is shown with 0.
  function countMatches() {
    const visible = [...shelves.querySelectorAll(".card")].filter((card) => !card.hidden);
    // The page of one kind has only the cards of this kind.
    const only = document.querySelector(".chips [aria-current] [data-count]");
    for (const number of only ? [only] : document.querySelectorAll(".chips [data-count]")) {
      number.textContent = visible.filter((card) => card.dataset.section === number.dataset.count).length;
    }
  }

  function show() {
    const words = queryWords();
    let count = 0;
    for (const section of shelves.querySelectorAll("section")) {
      let visible = 0;
      for (const card of section.querySelectorAll(".card")) {
        const variants = [...card.querySelectorAll(".variants li")];
        for (const variant of variants) variant.hidden = !isMatch(variant, words);
        card.hidden = variants.length ? variants.every((each) => each.hidden) : !isMatch(card, words);
        if (!card.hidden) visible += 1;
      }
      section.hidden = !visible;
      count += visible;
    }
    countMatches();
    nothing.hidden = count > 0;
    matches.textContent = count === 1 ? "1 match" : `${count} matches`;
  }

  function keepAddress() {
    for (const [link, base] of [...document.querySelectorAll(".chips a")].map((each) => [each, new URL(each.href)]).concat([[null, new URL(location.href)]])) {
      if (input.value.trim()) base.searchParams.set("q", input.value.trim());
      else base.searchParams.delete("q");
      if (link) link.href = base.href;
      else history.replaceState(null, "", base);
    }
  }

  async function loadAll() {
    isWhole = true;
    const url = new URL(location.href);
    url.searchParams.delete("q");
    try {
      const page = new DOMParser().parseFromString(await (await fetch(url)).text(), "text/html");
      shelves.replaceChildren(...page.getElementById("shelves").childNodes);
      window.cards?.prepare(shelves);
    } catch {
      isWhole = false; // the next key tries again; the button works meanwhile
    }
  }

  async function filter() {
    if (!isWhole) await loadAll();
    if (isWhole) show();
    keepAddress();
  }

  input.addEventListener("input", filter);
  form.addEventListener("submit", (event) => {
    if (!isWhole) return;
    event.preventDefault();
    filter();
  });
  if (isWhole && input.value) show(); // a value that the browser restored
})();
