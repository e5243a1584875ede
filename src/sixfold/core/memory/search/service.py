"""Search over the pages of an account, from the query to ranked results with explanations.

The pages of an account are in memory as an `Index`. Each search first reads the number of the account's last
change from the database, and then the newer changes, so that it finds every commit of any server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.database import Database, Query, Row, Rows, Transaction, encode_json, now, one
from sixfold.core.memory import markdown
from sixfold.core.memory.indexing import tokens
from sixfold.core.memory.indexing.weights import STOP_WORDS_IN_TEXT, STOP_WORDS_IN_TITLE, WEIGHTS
from sixfold.core.memory.models import Caller
from sixfold.core.memory.ports import Hit, Mode, SearchRequest, SearchResult
from sixfold.core.memory.relation_extraction import service as inference
from sixfold.core.memory.search import phrases, query_parser, ranking, reindex, snippets, time_expressions
from sixfold.core.memory.search.embedding import Embedder, EmbeddingModel, QueryVectors
from sixfold.core.memory.search.index_cache import IndexCache, IndexStale
from sixfold.core.memory.search.ports import Index, IndexView, SearchFilter
from sixfold.core.memory.search.ranking import PageScores, RankedQuery
from sixfold.core.memory.search.time_expressions import TimeSpan

# Maximum number of characters of a query.
MAX_CHARS = 10_000
MAX_LIMIT = 100
MAX_OFFSET = 10_000
_LOOK_SECONDS = 10.0
_ANY_CHARS = 2**53
# Characters of pages up to which snippets are cut on the event loop instead of in a thread.
_LOOP_CHARS = 2**16
# The work up to which a search ranks on the event loop, about 10 ms: pages and vectors, times the characters
# of the query and some that each search counts.
LOOP_WORK, _LEAST_CHARS = 20_000_000, 100
UNLOCK = "Semantic search needs an embedding model: run `sixfold engines add embeddings`."

# Maximum characters of a phrase of stop words.
_PHRASE_CHARS = 200

T = TypeVar("T")
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
        """Set up the service; `find_model` returns the embedding model, or None if it is not installed."""
        self._database = database
        self._indexes = indexes
        self._find_model = find_model
        self._questions: QueryVectors | None = None
        self._embedder: Embedder | None = None

    async def look(self) -> bool:
        """Return whether an embedding model is installed now."""
        if self._embedder is None:
            model = await asyncio.to_thread(self._find_model)
            if model is not None:
                self._indexes.use(model.name)
                self._questions = QueryVectors(model)
                self._embedder = Embedder(self._database, model)
        return self._embedder is not None

    async def run(self) -> None:
        """Renew old entries, load modules and data, then embed pages until canceled."""
        # The next start tries again.
        with contextlib.suppress(errors.StoreFailed):
            await reindex.rewrite_outdated(self._database)
            if await self._database.read(one("memory_in_use")) is not None:
                await asyncio.to_thread(self._warm)
        while not await self.look():  # noqa: ASYNC110  # a folder cannot be awaited
            await asyncio.sleep(_LOOK_SECONDS)
        if self._embedder is not None:
            await self._embedder.run()

    async def keep_snapshots(self) -> None:
        """Keep snapshots of large indexes on disk until canceled."""
        await self._indexes.keep_snapshots()

    def _warm(self) -> None:
        """Load the modules and data for the first search, unless the memory is unused."""
        self._indexes.warm()
        inference.forms()

    async def waiting(self) -> int:
        """Return the number of pages that wait for their vectors; 0 without a model."""
        return await self._embedder.waiting() if self._embedder is not None else 0

    async def search(self, caller: Caller, request: SearchRequest) -> SearchResult:
        """Return the best pages.

        Any text is a valid query; operators are not supported. Raises `InvalidInput`, and `EngineUnavailable`
        if a required model is missing.
        """
        began = time.perf_counter()
        _check(request)
        request = replace(
            request,
            query=request.query.replace("\0", " "),
            # NUL does not occur in pages, and databases do not accept it.
        )
        if request.mode in ("semantic", "hybrid") and self._questions is None:
            raise errors.EngineUnavailable(UNLOCK)
        index = await self._indexes.index(caller.account_id)
        vector = None
        if self._questions is not None and request.mode != "lexical":
            vector = await self._questions.vector(caller.replays or caller.account_id, request.query)
        if (len(index) + index.vectors) * (_LEAST_CHARS + len(request.query)) > LOOP_WORK:
            results, mode = await self._results_in_thread(caller, request, vector)
        else:
            results, mode = await self._results_on_loop(caller, request, vector)
        chars = sum(row["chars"] for row, _ in results)
        hits = (
            _hits(results, request) if chars <= _LOOP_CHARS else await self._large(caller, results, request)
        )
        return SearchResult(hits, mode, round((time.perf_counter() - began) * 1000, 3))

    async def _large(self, caller: Caller, results: _Results, request: SearchRequest) -> tuple[Hit, ...]:
        """Create snippets in a thread, reading pages one by one if their long texts were not fetched."""
        hits: list[Hit] = []
        short: list[tuple[Row, _RankedHit]] = []
        for row, ranked_hit in results:
            if row["body"] is not None:
                short.append((row, ranked_hit))
                continue
            hits += await asyncio.to_thread(_hits, short, request)
            short.clear()
            rows = await self._database.read(_pages(caller, [ranked_hit], _ANY_CHARS))
            # The page may have changed since.
            if rows and caller.sees(_texts(rows[0]["collections"])):
                hits += await asyncio.to_thread(_hits, [(rows[0], ranked_hit)], request)
        return (*hits, *await asyncio.to_thread(_hits, short, request))

    async def _results_on_loop(
        self, caller: Caller, request: SearchRequest, vector: bytes | None
    ) -> tuple[_Results, Mode]:
        while True:
            try:
                return await self._database.read(self._results(caller, request, vector))
            except IndexStale:
                await self._indexes.index(caller.account_id)

    def _results(
        self, caller: Caller, request: SearchRequest, vector: bytes | None
    ) -> Transaction[tuple[_Results, Mode]]:
        """Update the index, rank, and fetch the results, all in one snapshot."""
        inputs = yield from _ranking_inputs(caller, request, vector)
        index = yield from self._indexes.catch_up(caller.account_id)
        best = _best_pages(index, caller, request, inputs)
        with_phrase = yield from _with_phrase(caller, best, request.query)
        ranked_hits = _ranked_hits(best, request, with_phrase)
        return (yield from _fetched(caller, ranked_hits)), best.mode

    async def _results_in_thread(
        self, caller: Caller, request: SearchRequest, vector: bytes | None
    ) -> tuple[_Results, Mode]:
        """Rank a large index in a thread; pages that change meanwhile are checked again.

        One search of an account runs at a time, and accounts take turns in `fair_threads`.
        """
        async with self._indexes.locked(caller.account_id) as index:
            inputs = await self._database.read(_ranking_inputs(caller, request, vector))
            best = await _in_thread(lambda: _best_pages(index, caller, request, inputs))
            with_phrase = await self._database.read(_with_phrase(caller, best, request.query))
            ranked_hits = await _in_thread(lambda: _ranked_hits(best, request, with_phrase))
        results = await self._database.read(_fetched(caller, ranked_hits))
        visible = [(row, hit) for row, hit in results if caller.sees(_texts(row["collections"]))]
        return visible, best.mode


async def _in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread.

    A canceled caller also waits for the end of the function, which reads a locked index.
    """
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


def _ranking_inputs(
    caller: Caller, request: SearchRequest, vector: bytes | None
) -> Transaction[_RankingInputs]:
    relation_scores: dict[str, float] = {}
    if request.mode != "semantic":
        answers = yield from inference.answers(caller.account_id, request.query, caller.collections)
        relation_scores = {answer.page_id: answer.score for answer in answers}
    span: TimeSpan | None = None
    if time_expressions.mentioned(request.query):
        span = time_expressions.parse(request.query, (yield from now()))
    exact = (yield from _stop_word_scores(caller, request.query)) if request.mode != "semantic" else {}
    return _RankingInputs(vector, relation_scores, span, exact)


def _fetched(caller: Caller, ranked_hits: Sequence[_RankedHit]) -> Transaction[_Results]:
    """Return the pages of results in order, except pages that no longer exist."""
    if not ranked_hits:
        return ()
    rows = yield from _pages(caller, ranked_hits, _LOOP_CHARS)
    by_id = {row["id"]: row for row in rows}
    return [(by_id[hit.page_id], hit) for hit in ranked_hits if hit.page_id in by_id]


def _stop_word_scores(caller: Caller, text: str) -> Transaction[dict[str, float]]:
    """Return scores for pages whose title or text contains a query of stop words, which are not indexed."""
    words = " ".join(tokens.fold(text).split())
    if not words or len(words) > _PHRASE_CHARS or tokens.terms(text):
        return {}
    # A text that consists only of punctuation is not a phrase.
    if not any(char.isalnum() for char in words):
        return {}
    rows = yield Query("memory_phrase", {"account_id": caller.account_id, "phrase": words})
    return {row["id"]: STOP_WORDS_IN_TITLE if row["titled"] else STOP_WORDS_IN_TEXT for row in rows}


def _pages(caller: Caller, ranked_hits: Sequence[_RankedHit], limit: int) -> Transaction[Rows]:
    """Return the pages; texts above a limit of characters are omitted."""
    ids = encode_json([hit.page_id for hit in ranked_hits])
    return (yield Query("memory_results", {"account_id": caller.account_id, "ids": ids, "most": limit}))


class _RankedHit(msgspec.Struct, frozen=True):
    """A search result before its page is fetched."""

    page_id: str
    score: float
    passage: int
    words: Collection[str]
    explain: Mapping[str, Any] | None


_Results = Sequence[tuple[Row, _RankedHit]]


class _RankingInputs(msgspec.Struct, frozen=True):
    """The inputs of a ranking other than the words."""

    vector: bytes | None
    relation_scores: Mapping[str, float]
    span: TimeSpan | None
    stop_word_scores: Mapping[str, float]


class _BestPages(msgspec.Struct, frozen=True):
    """The positions of the best pages in order, and the data from which the hits are computed."""

    view: IndexView
    query: RankedQuery
    ranked: PageScores
    positions: Sequence[int]
    # The scores of the first pages, and which of these pages contain all words of the query.
    scores: Mapping[int, float]
    complete: Sequence[int]
    mode: Mode


def _best_pages(index: Index, caller: Caller, request: SearchRequest, inputs: _RankingInputs) -> _BestPages:
    mode = request.mode
    # Pages may not have vectors yet.
    if mode == "auto":
        mode = "hybrid" if inputs.vector is not None and index.vectors else "lexical"
    view = index.view(caller.collections)
    parsed_query = query_parser.parse_query(view, request.query, span=inputs.span)
    if request.partial:
        parsed_query = query_parser.completed(view, request.query, parsed_query)
    if mode == "semantic":
        question = RankedQuery({}, vector=inputs.vector, span=parsed_query.span, timed=parsed_query.timed)
    else:
        vector = inputs.vector if mode == "hybrid" else None
        question = replace(
            parsed_query,
            vector=vector,
            relation_scores=inputs.relation_scores,
            stop_word_scores=inputs.stop_word_scores,
        )
    view = ranking.narrowed(view, question)
    ranked = ranking.rank(view, question)
    keep = SearchFilter(request.types, request.tags, request.collections, request.since, request.until)
    end = request.offset + request.limit
    best = view.best(ranked.score, ranked.candidates, keep, max(end, phrases.MAX_PAGES))
    scores = {position: view.score_at(ranked.score, position) for position in best[: phrases.MAX_PAGES]}
    complete = [position for position in scores if view.score_at(ranked.complete, position) > 0]
    return _BestPages(view, parsed_query, ranked, best, scores, complete, mode)


def _ranked_hits(
    best: _BestPages, request: SearchRequest, with_phrase: Collection[int]
) -> Sequence[_RankedHit]:
    """Return the requested results, after raising the scores of pages that contain the query's phrase."""
    view, parsed_query = best.view, best.query
    scores = {
        position: score + WEIGHTS.phrase if position in with_phrase else score
        for position, score in best.scores.items()
    }
    first = sorted(scores, key=lambda position: -scores[position])
    ordered = (*first, *best.positions[phrases.MAX_PAGES :])
    return [
        _RankedHit(
            page_id=view.page_id(position),
            score=scores[position] if position in scores else view.score_at(best.ranked.score, position),
            passage=view.best_passage(position, parsed_query.words),
            words=parsed_query.words,
            explain=_explained(view, position, parsed_query, best.ranked, with_phrase)
            if request.explain
            else None,
        )
        for position in ordered[request.offset : request.offset + request.limit]
    ]


def _with_phrase(caller: Caller, best: _BestPages, query: str) -> Transaction[frozenset[int]]:
    """Return the complete pages in which the words of a query of at least two words are adjacent."""
    phrase = phrases.phrase_of(query)
    if not phrase or len(best.complete) < 2:
        return frozenset()
    ids = {best.view.page_id(position): position for position in best.complete}
    document = encode_json(list(ids))
    rows = yield Query(
        "memory_results", {"account_id": caller.account_id, "ids": document, "most": phrases.MAX_CHARS}
    )
    return frozenset(
        ids[row["id"]] for row in rows if phrases.has_phrase(f"{row['title']}\n{row['body'] or ''}", phrase)
    )


def _check(request: SearchRequest) -> None:
    if not request.query.strip():
        raise errors.InvalidInput.of("query", "query must not be empty")
    for name, value, minimum, limit in (
        ("query", len(request.query), 1, MAX_CHARS),
        ("limit", request.limit, 1, MAX_LIMIT),
        ("offset", request.offset, 0, MAX_OFFSET),
        ("snippet_chars", request.snippet_chars, snippets.MIN_CHARS, snippets.MAX_CHARS),
    ):
        if not minimum <= value <= limit:
            unit = " characters" if name == "query" else ""
            raise errors.InvalidInput.of(name, f"{name} must be {minimum} to {limit:,}{unit} (got {value:,})")


def _hits(results: _Results, request: SearchRequest) -> tuple[Hit, ...]:
    return tuple(_hit(row, hit, request) for row, hit in results)


def _hit(row: Row, ranked_hit: _RankedHit, request: SearchRequest) -> Hit:
    return Hit(
        id=row["id"],
        slug=row["slug"],
        title=row["title"],
        type=row["type"],
        tags=_texts(row["tags"]),
        collections=_texts(row["collections"]),
        score=ranked_hit.score,
        snippet=snippets.of_body(
            markdown.blank_comments(row["body"]),
            ranked_hit.passage,
            ranked_hit.words,
            request.snippet_chars,
            marked=request.marked,
        ),
        updated_at=row["updated_at"],
        citation=snippets.citation(row["head"], row["body"], ranked_hit.passage, ranked_hit.words),
        explain=ranked_hit.explain,
    )


def _explained(
    view: IndexView, position: int, question: RankedQuery, scores: PageScores, with_phrase: Collection[int]
) -> Mapping[str, Any]:
    parts: dict[str, Any] = {**scores.score_parts(view, position)}
    parts["phrase"] = WEIGHTS.phrase if position in with_phrase else 0.0
    parts["words"] = {word: view.rarity(word) for word in question.words}
    if view.on_disk(position):
        parts["on_disk"] = True
    if question.spelling:
        parts["spelling"] = {word: list(near) for word, near in question.spelling.items()}
    return parts
