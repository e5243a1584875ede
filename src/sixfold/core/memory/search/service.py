"""Search over the pages of an account: from a query to ranked results with explanations.

The pages of an account are in memory as an `Index`. Each search first asks the database for the number of the
account's last change and reads newer ones, so that it finds every commit of any server.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.database import Database, Query, Row, Rows, Transaction, now, one
from sixfold.core.memory import markdown
from sixfold.core.memory.indexing import answer_kinds, tokens
from sixfold.core.memory.models import Caller
from sixfold.core.memory.ports import Hit, Mode, SearchRequest, SearchResult
from sixfold.core.memory.relation_extraction import service as inference
from sixfold.core.memory.search import (
    compounds,
    phrases,
    ranking,
    reindex,
    snippets,
    suffix_typos,
    time_expressions,
)
from sixfold.core.memory.search.embedding import Embedder, EmbeddingModel, QueryVectors
from sixfold.core.memory.search.index_cache import IndexCache, IndexStale
from sixfold.core.memory.search.ports import Index, IndexView, SearchFilter
from sixfold.core.memory.search.ranking import RankedPage, RankedQuery
from sixfold.core.memory.search.time_expressions import TimeSpan

# The limit on the characters of a query.
MAX_CHARS = 10_000
MAX_LIMIT = 100
MAX_OFFSET = 10_000
# The limit on the words of a query; the rarest are used.
_MAX_WORDS = 48
# The minimum letters of a word that may have one wrong letter, and two.
_LETTERS, _MANY_LETTERS = 5, 8
# The limit on words of a query that no page has, and on the candidates for each.
_MAX_GUESSED, _CANDIDATES = 4, 3
# The minimum length of an incomplete last word, the candidates that are read for it, and those that are used.
_MIN_TYPED, _MAX_SEEN, _MAX_COMPLETED = 2, 48, 8
# The minimum letters of a word that may be the beginning of another.
_MIN_PREFIX = 4
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
# Words that have no meaning next to a time expression.
_SAYS_NOTHING = tokens.terms("happened changed wrote written new")
_LOOK_SECONDS = 10.0
_ANY_CHARS = 2**53
# The characters of pages up to which snippets are cut on the event loop instead of in a thread.
_LOOP_CHARS = 2**16
UNLOCK = "Semantic search needs an embedding model: run `sixfold engines add embeddings`."

# The characters of a phrase of stop words, and the scores of pages that have it.
_PHRASE_CHARS, _IN_TITLE, _IN_TEXT = 200, 1.0, 0.5

_texts = msgspec.json.Decoder(tuple[str, ...]).decode


def _no_model() -> EmbeddingModel | None:
    return None


class SearchService:
    """The implementation of `ports.Searcher` for all accounts of one database."""

    def __init__(
        self,
        database: Database,
        indexes: IndexCache,
        find_model: Callable[[], EmbeddingModel | None] = _no_model,
    ):
        """Set up the service; `find_model` loads the embedding model, or returns None without one."""
        self._database = database
        self._indexes = indexes
        self._find_model = find_model
        self._questions: QueryVectors | None = None
        self._embedder: Embedder | None = None

    async def look(self) -> bool:
        """Return whether there is an embedding model, which may have been installed since."""
        if self._embedder is None:
            model = await asyncio.to_thread(self._find_model)
            if model is not None:
                self._indexes.use(model.name)
                self._questions = QueryVectors(model)
                self._embedder = Embedder(self._database, model)
        return self._embedder is not None

    async def run(self) -> None:
        """Renew old entries, warm up, then embed pages until cancelled."""
        # The next start tries again.
        with contextlib.suppress(errors.StoreFailed):
            await reindex.rewrite_outdated(self._database)
            if await self._database.read(one("memory_in_use")) is not None:
                await asyncio.to_thread(self._warm)
        while not await self.look():  # noqa: ASYNC110  # a folder cannot be awaited
            await asyncio.sleep(_LOOK_SECONDS)
        if self._embedder is not None:
            await self._embedder.run()

    def _warm(self) -> None:
        """Load the modules and data for the first search, unless the memory is unused."""
        self._indexes.warm()
        inference.forms()

    async def waiting(self) -> int:
        """Return the number of pages that wait for their vectors, 0 without a model."""
        return await self._embedder.waiting() if self._embedder is not None else 0

    async def search(self, caller: Caller, request: SearchRequest) -> SearchResult:
        """Return the best pages.

        Every text is a valid query without operators. Raises `BadRequest`, and `EngineUnavailable` if a
        required model is missing.
        """
        began = time.perf_counter()
        _check(request)
        request = replace(
            request,
            query=request.query.replace("\0", " "),
            # No page contains it, and no database accepts it.
        )
        if request.mode in ("semantic", "hybrid") and self._questions is None:
            raise errors.EngineUnavailable(UNLOCK)
        await self._indexes.index(caller.account_id)
        vector = None
        if self._questions is not None and request.mode != "lexical":
            vector = await self._questions.vector(request.query)
        while True:
            try:
                results, mode = await self._database.read(self._results(caller, request, vector))
                break
            except IndexStale:
                await self._indexes.index(caller.account_id)
        chars = sum(row["chars"] for row, _ in results)
        hits = (
            _hits(results, request) if chars <= _LOOP_CHARS else await self._large(caller, results, request)
        )
        return SearchResult(hits, mode, round((time.perf_counter() - began) * 1000, 3))

    async def _large(
        self, caller: Caller, results: Sequence[tuple[Row, _HitPosition]], request: SearchRequest
    ) -> tuple[Hit, ...]:
        """Create snippets in a thread, reading pages one by one whose long texts were not fetched."""
        hits: list[Hit] = []
        short: list[tuple[Row, _HitPosition]] = []
        for row, place in results:
            if row["body"] is not None:
                short.append((row, place))
                continue
            hits += await asyncio.to_thread(_hits, short, request)
            short.clear()
            rows = await self._database.read(_pages(caller, [place], _ANY_CHARS))
            # The page may have changed since.
            if rows and caller.sees(_texts(rows[0]["collections"])):
                hits += await asyncio.to_thread(_hits, [(rows[0], place)], request)
        return (*hits, *await asyncio.to_thread(_hits, short, request))

    def _results(
        self, caller: Caller, request: SearchRequest, vector: bytes | None
    ) -> Transaction[tuple[Sequence[tuple[Row, _HitPosition]], Mode]]:
        """Update the index, rank, and fetch the results, all from one snapshot."""
        related: dict[str, float] = {}
        if request.mode != "semantic":
            answers = yield from inference.answers(caller.account_id, request.query, caller.collections)
            related = {answer.page_id: answer.score for answer in answers}
        span: TimeSpan | None = None
        if time_expressions.mentioned(request.query):
            span = time_expressions.parse(request.query, (yield from now()))
        exact = (yield from _exact(caller, request.query)) if request.mode != "semantic" else {}
        index = yield from self._indexes.catch_up(caller.account_id)
        places, mode = yield from _best_pages(
            index,
            caller,
            request,
            _KnownPages(vector, related, span, exact),
        )
        if not places:
            return (), mode
        rows = yield from _pages(caller, places, _LOOP_CHARS)
        by_id = {row["id"]: row for row in rows}
        return [(by_id[place.page_id], place) for place in places if place.page_id in by_id], mode


def _exact(caller: Caller, text: str) -> Transaction[dict[str, float]]:
    """Return the pages with a query of stop words, which are not indexed, in the title or text."""
    words = " ".join(tokens.fold(text).split())
    if not words or len(words) > _PHRASE_CHARS or tokens.terms(text):
        return {}
    # A text that has nothing but signs is no phrase.
    if not any(char.isalnum() for char in words):
        return {}
    rows = yield Query("memory_phrase", {"account_id": caller.account_id, "phrase": words})
    return {row["id"]: _IN_TITLE if row["titled"] else _IN_TEXT for row in rows}


def _pages(caller: Caller, places: Sequence[_HitPosition], limit: int) -> Transaction[Rows]:
    """Return the pages; texts above a limit of characters are left out."""
    ids = msgspec.json.encode([place.page_id for place in places]).decode()
    return (yield Query("memory_results", {"account_id": caller.account_id, "ids": ids, "most": limit}))


@dataclass(frozen=True, slots=True)
class _HitPosition:
    """A search result before its page is fetched."""

    page_id: str
    score: float
    passage: int
    words: Collection[str]
    explain: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class _KnownPages:
    """The inputs of a ranking besides the words: the vector, related and exact pages, and the time span."""

    vector: bytes | None
    related: Mapping[str, float]
    span: TimeSpan | None
    exact: Mapping[str, float]


def _best_pages(
    index: Index, caller: Caller, request: SearchRequest, known: _KnownPages
) -> Transaction[tuple[list[_HitPosition], Mode]]:
    """Return the best pages in order, and the search mode."""
    mode = request.mode
    # There may be no vectors yet.
    if mode == "auto":
        mode = "hybrid" if known.vector is not None and index.vectors else "lexical"
    view = index.view(caller.collections)
    worded = parse_query(view, request.query, span=known.span)
    if request.partial:
        worded = _completed(view, request.query, worded)
    if mode == "semantic":
        question = RankedQuery({}, vector=known.vector, span=worded.span, timed=worded.timed)
    else:
        vector = known.vector if mode == "hybrid" else None
        question = replace(worded, vector=vector, answers=known.related, exact=known.exact)
    ranked = ranking.rank(view, question)
    keep = SearchFilter(request.types, request.tags, request.collections, request.since, request.until)
    end = request.offset + request.limit
    best = view.best(ranked.score, ranked.among, keep, max(end, phrases.MAX_PAGES))
    scores = {place: view.score_at(ranked.score, place) for place in best[: phrases.MAX_PAGES]}
    complete = [place for place in scores if view.score_at(ranked.complete, place) > 0]
    with_phrase = yield from _with_phrase(caller, view, complete, request.query)
    for place in with_phrase:
        scores[place] += ranking.WEIGHTS.phrase
    first = sorted(scores, key=lambda place: -scores[place])
    return [
        _HitPosition(
            page_id=view.page_id(place),
            score=scores[place] if place in scores else view.score_at(ranked.score, place),
            passage=view.best_passage(place, worded.words),
            words=worded.words,
            explain=_explained(view, place, worded, ranked, with_phrase) if request.explain else None,
        )
        for place in (*first, *best[phrases.MAX_PAGES :])[request.offset : end]
    ], mode


def _with_phrase(
    caller: Caller, view: IndexView, places: Sequence[int], query: str
) -> Transaction[frozenset[int]]:
    """Return which of these pages have the words of the query next to each other, if they are several."""
    phrase = phrases.phrase_of(query)
    if not phrase or len(places) < 2:
        return frozenset()
    ids = {view.page_id(place): place for place in places}
    document = msgspec.json.encode(list(ids)).decode()
    rows = yield Query(
        "memory_results", {"account_id": caller.account_id, "ids": document, "most": phrases.MAX_CHARS}
    )
    return frozenset(
        ids[row["id"]] for row in rows if phrases.has_phrase(f"{row['title']}\n{row['body'] or ''}", phrase)
    )


def parse_query(
    view: IndexView, text: str, vector: bytes | None = None, span: TimeSpan | None = None
) -> RankedQuery:
    """Parse a text as a query of `view`: its rarest words, and the names in it.

    The words of a time expression count as words if there are no others.
    """
    counted: Mapping[str, int] = tokens.terms(text)
    rest = counted if span is None else tokens.terms(text.replace(span.phrase, " ")) - _SAYS_NOTHING
    if span is not None and rest and not span.spelled:
        counted = rest
    # In a query such as "The Who", stop words may be a title.
    if not counted:
        counted = Counter(tokens.fold(text).split()[:_MAX_WORDS])
    known = {word: view.rarity(word) * times for word, times in counted.items()}
    rarest = sorted((word for word in known if known[word] > 0), key=lambda word: (-known[word], word))
    words = {word: float(counted[word]) for word in rarest[:_MAX_WORDS]}
    spelling = _spelling(view, text, known) if len(rarest) < min(len(known), _MAX_WORDS) else {}
    if not rarest and not spelling:
        spelling = _beginning(view, text)
    between = None if span is None else (span.since, span.until)
    return RankedQuery(
        words={**_guessed(view, words, spelling), **words, **compounds.expand(view, known.keys(), text)},
        names=names(text, words),
        vector=vector,
        span=between,
        spelling=spelling,
        expected_kind=answer_kinds.expected_kind(text),
        timed=span is not None and not rest,
        # A query with unknown words is not about a page that has all of the others.
        required=tuple(rarest) if len(rarest) == len(known) else (),
    )


def _completed(view: IndexView, text: str, question: RankedQuery) -> RankedQuery:
    """Return a question with the words that begin with its last one, which is still being typed."""
    last = "".join(tokens.fold(text).split()[-1:]) if not text[-1:].isspace() else ""
    if len(last) < _MIN_TYPED:
        return question
    begun = [word for word in view.containing(last, _MAX_SEEN) if word.startswith(last)][:_MAX_COMPLETED]
    return replace(question, words={**dict.fromkeys(begun, 1.0), **question.words})


def _spelling(view: IndexView, text: str, known: Mapping[str, float]) -> dict[str, Sequence[str]]:
    """Return replacements for words that no page has; a name may have one wrong letter."""
    long = [
        word
        for word, rarity in known.items()
        if not rarity and len(word) >= _LETTERS and word.isalpha() and tokens.stem(word)
    ]
    capital = set(_names(text)) if long else set[str]()
    written: Mapping[str, str] = tokens.written(text) if long else {}
    corrections: dict[str, Sequence[str]] = {}
    for word in long[:_MAX_GUESSED]:
        limit = 2 if len(word) >= _MANY_LETTERS and word not in capital else 1
        near = _near(view, word, written.get(word, word), limit)
        corrections[word] = [other for other in near if other not in known]
    return {word: near for word, near in corrections.items() if near}


def _near(view: IndexView, word: str, written: str, limit: int) -> Sequence[str]:
    """Return replacements for a word: one edit away, then with another ending, then `limit` edits away."""
    if near := view.near(word, 1, _CANDIDATES):
        return near
    for stems in (suffix_typos.stems, suffix_typos.all_stems):
        rarity = {stem: view.rarity(stem) for stem in stems(written)}
        if near := sorted((stem for stem in rarity if rarity[stem]), key=lambda stem: (rarity[stem], stem)):
            return near[:_CANDIDATES]
    return view.near(word, limit, _CANDIDATES) if limit > 1 else ()


def _beginning(view: IndexView, text: str) -> dict[str, Sequence[str]]:
    """Return for each word the indexed words that begin with it, for a query without any known word."""
    extensions: dict[str, Sequence[str]] = {}
    for word, form in list(tokens.written(text).items())[:_MAX_GUESSED]:
        if len(form) >= _MIN_PREFIX and form[0].isalpha():
            longer = [other for other in view.containing(form, _MAX_WORDS) if other.startswith(form)]
            extensions[word] = [form] if view.rarity(form) else longer[:_CANDIDATES]
    return {word: near for word, near in extensions.items() if near}


def _guessed(
    view: IndexView, words: Mapping[str, float], spelling: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return replacements, none with more weight than the best word of the query."""
    limit = max((weight * view.rarity(word) for word, weight in words.items()), default=math.inf)
    near = {word for candidates in spelling.values() for word in candidates}
    return {word: min(1.0, limit / view.rarity(word)) for word in sorted(near)}


def names(text: str, words: Collection[str]) -> tuple[str, ...]:
    """Return the names in a text: its capitalized words, or all words of a text without capitals."""
    present = {word for word in _names(text) if word in words}
    return tuple(sorted(present)) or tuple(words)


def _names(text: str) -> Iterator[str]:
    """Return the index words of a text that are capitalized."""
    for match in _NAME.finditer(text):
        if match[0][0].isupper():
            yield from tokens.words(match[0])


def _check(request: SearchRequest) -> None:
    if not request.query.strip():
        raise errors.BadRequest("query must not be empty")
    for name, value, minimum, limit in (
        ("query", len(request.query), 1, MAX_CHARS),
        ("limit", request.limit, 1, MAX_LIMIT),
        ("offset", request.offset, 0, MAX_OFFSET),
        ("snippet_chars", request.snippet_chars, snippets.MIN_CHARS, snippets.MAX_CHARS),
    ):
        if not minimum <= value <= limit:
            unit = " characters" if name == "query" else ""
            raise errors.BadRequest(f"{name} must be {minimum} to {limit:,}{unit} (got {value:,})")


def _hits(results: Sequence[tuple[Row, _HitPosition]], request: SearchRequest) -> tuple[Hit, ...]:
    return tuple(_hit(row, place, request) for row, place in results)


def _hit(row: Row, place: _HitPosition, request: SearchRequest) -> Hit:
    return Hit(
        id=row["id"],
        slug=row["slug"],
        title=row["title"],
        type=row["type"],
        tags=_texts(row["tags"]),
        collections=_texts(row["collections"]),
        score=place.score,
        snippet=snippets.of_body(
            markdown.blank_comments(row["body"]),
            place.passage,
            place.words,
            request.snippet_chars,
            marked=request.marked,
        ),
        updated_at=row["updated_at"],
        citation=snippets.citation(row["head"], row["body"], place.passage, place.words),
        explain=place.explain,
    )


def _explained(
    view: IndexView, place: int, question: RankedQuery, ranked: RankedPage, with_phrase: Collection[int]
) -> Mapping[str, Any]:
    parts: dict[str, Any] = {**ranked.score_parts(view, place)}
    parts["phrase"] = ranking.WEIGHTS.phrase if place in with_phrase else 0.0
    parts["words"] = {word: view.rarity(word) for word in question.words}
    if view.on_disk(place):
        parts["on_disk"] = True
    if question.spelling:
        parts["spelling"] = {word: list(near) for word, near in question.spelling.items()}
    return parts
