"""Measure the memory at 100,000 pages on both databases: import, index, search, delay of new pages.

.venv/bin/python -m bench memory

The first pages are imported completely, with versions, links and inference. The others are written directly
to the tables that search reads, to limit the benchmark to minutes; search does not distinguish them.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import tempfile
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.reporting import Row, calibration, of_samples
from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.database import Database, Query, Transaction, encode_json
from sixfold.core.memory import commands, pages, queries, slugs
from sixfold.core.memory.commands import FREELY, PageWriter, WriteTerms
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ArchiveMember
from sixfold.core.memory.import_export.files import FileNaming
from sixfold.core.memory.indexing import entries as index
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller, MemoryPage
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search.embedding import halved
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.index_snapshots import IndexSnapshots
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from sixfold.store.search.snapshot_files import SnapshotFolder
from tests.harness import backends, databases, postgres

TITLE = "Memory at 100,000 pages"
PAGES, IMPORTED, QUESTIONS, WRITES, EDITS = 100_000, 5_000, 300, 200, 20_000
_BATCH = 500
_AT_ONCE = 50  # concurrent edits, followed by a search
_VOCABULARY = 60_000
_SPOKEN = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo yu za chi dre flo gra"
_SYLLABLES = _SPOKEN.split()


class Texts:
    """Generated prose: Zipf-like words, a name in every second page, and a link in every third."""

    def __init__(self, seed: int = 11) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # pages that are the same everywhere
        self._words = [self._word() for _ in range(_VOCABULARY)]
        self._shares = [1 / (place + 8) for place in range(_VOCABULARY)]
        self._pool: list[str] = []
        self._next = 0

    def _word(self) -> str:
        return "".join(self._draw.choices(_SYLLABLES, k=self._draw.randrange(2, 5)))

    def words(self, count: int) -> list[str]:
        """Return `count` random words; common words are more frequent."""
        if self._next + count > len(self._pool):
            self._pool, self._next = self._draw.choices(self._words, self._shares, k=200_000), 0
        self._next += count
        return self._pool[self._next - count : self._next]

    def page(self, number: int) -> tuple[str, str, str]:
        """Return the slug, title and body of a page of about 120 words."""
        parts = [" ".join(self.words(12)).capitalize() + "." for _ in range(10)]
        if number % 2:
            parts.insert(3, f"{self.name()} spoke of it.")
        if number % 3 == 0:
            parts.append(f"See [[log/{number // 50}/{max(0, number - 7):06d}]].")
        title = " ".join(self.words(3)).capitalize()
        return f"log/{number // 50}/{number:06d}", title, " ".join(parts)

    def name(self) -> str:
        return self._word().capitalize()


class Noise:
    """An embedding model without cost: it returns random vectors, to time the search alone."""

    name = "noise/1"

    def __init__(self) -> None:
        self._draw = random.Random(5)  # noqa: S311  # vectors of chance

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return vectors of about length 1."""
        return [array("f", [self._draw.gauss(0, 0.051) for _ in range(384)]).tobytes() for _ in texts]


def _fill(account_id: str, texts: Texts, numbers: Sequence[int]) -> Transaction[None]:
    """Write pages as `pages.save` leaves them for search, without links and inference."""
    results = [_page(account_id, number, *texts.page(number)) for number in numbers]
    rows = [
        {
            "id": page.id, "slug": page.slug, "name": slugs.name(page.slug), "title": page.title,
            "type": page.type, "tags": "[]", "collections": "[]", "version": 1, "created_at": page.created_at,
            "updated_at": page.updated_at, "created_by": "bench", "head": "", "body": page.body, "path": "",
            "operation": "write", "by": "bench", "behalf": "", "chars": len(page.body),
        }
        for page in results
    ]  # fmt: skip
    yield Query("pages_put", {"account_id": account_id, "rows": encode_json(rows)})
    yield Query("versions_put", {"account_id": account_id, "rows": encode_json(rows)})
    yield from pages.count_folders(account_id, [page.slug for page in results], ())
    yield from index.put_many([(page, ()) for page in results])


def _page(account_id: str, number: int, slug: str, title: str, body: str) -> MemoryPage:
    who = {"account_id": account_id, "created_by": "bench", "created_at": number, "updated_at": number}
    what = {"slug": slug, "title": title, "body": body, "type": "note", "tags": (), "collections": ()}
    return MemoryPage(id=ids.new("page"), version=1, **who, **what)


async def _import(database: Database, caller: Caller, texts: Texts) -> float:
    """Return the pages per second of an import."""
    writer, naming = PageWriter(caller, MemoryLimits()), FileNaming()
    result = (texts.page(number) for number in range(IMPORTED))
    files = [ArchiveMember(f"{slug}.md", f"# {title}\n\n{body}\n") for slug, title, body in result]
    began = time.perf_counter()
    for start in range(0, len(files), import_export_files.BATCH_FILES):
        batch = files[start : start + import_export_files.BATCH_FILES]
        await database.write(import_export_files.put(writer, batch, naming), durable=False)
    return len(files) / (time.perf_counter() - began)


async def _searches(
    finder: SearchService, caller: Caller, questions: Sequence[str], mode: str
) -> tuple[list[float], str]:
    """Return the seconds of each search, and a note with the CPU time of a search."""
    seconds: list[float] = []
    spent = time.process_time()
    for question in questions:
        expected = SearchRequest(question, mode=mode)  # pyright: ignore[reportArgumentType] # a mode by its name
        began = time.perf_counter()
        await finder.search(caller, expected)
        seconds.append(time.perf_counter() - began)
    return seconds, f"{(time.process_time() - spent) / len(questions) * 1000:.1f} ms of CPU each"


async def _tree(database: Database, caller: Caller) -> list[float]:
    """Open the folder with the most subfolders, and return the seconds of each time."""
    seconds: list[float] = []
    for _ in range(WRITES):
        began = time.perf_counter()
        assert (await database.read(queries.folder(caller, "log/", 50))).folders
        seconds.append(time.perf_counter() - began)
    return seconds


async def _writes(database: Database, finder: SearchService, caller: Caller) -> list[float]:
    """Return the seconds from the write of each page until a search returns the page."""
    seconds: list[float] = []
    writer = PageWriter(caller, MemoryLimits())
    for _ in range(WRITES):
        word = f"needle{ids.new('page')[-16:]}x"
        began = time.perf_counter()
        await database.write(
            commands.write(writer, PageWrite(f"found/{word}", f"The {word} is here."), FREELY)
        )
        hits = (await finder.search(caller, SearchRequest(word))).hits
        seconds.append(time.perf_counter() - began)
        assert [hit.slug for hit in hits] == [f"found/{word}"]
    return seconds


async def _edits(database: Database, finder: SearchService, caller: Caller, texts: Texts) -> list[float]:
    """Append a sentence to many pages, and return the seconds of a search after each batch."""
    seconds: list[float] = []
    writer, draw = PageWriter(caller, MemoryLimits()), random.Random(4)  # noqa: S311  # the same edits everywhere
    for _ in range(0, EDITS, _AT_ONCE):
        numbers = draw.sample(range(PAGES), _AT_ONCE)
        edits = [(f"log/{number // 50}/{number:06d}", " ".join(texts.words(8))) for number in numbers]
        changes = [
            commands.edit(writer, slug, PageEdit("append", more), WriteTerms()) for slug, more in edits
        ]
        await asyncio.gather(*(database.write(change, durable=False) for change in changes))
        began = time.perf_counter()
        await finder.search(caller, SearchRequest(" ".join(texts.words(6))))
        seconds.append(time.perf_counter() - began)
    return seconds


async def _on(back: str, folder: Path) -> list[Row]:
    texts = Texts()
    async with databases.running_database(back, folder) as database:
        account = await database.write(accounts.create("bench@example.com"))
        caller = Caller(account.id, "bench")
        imported = await _import(database, caller, texts)
        began = time.perf_counter()
        for start in range(IMPORTED, PAGES, _BATCH):
            numbers = range(start, start + _BATCH)
            await database.write(_fill(account.id, texts, numbers), durable=False)
        filled = (PAGES - IMPORTED) / (time.perf_counter() - began)
        questions = [" ".join(texts.words(6)) for _ in range(QUESTIONS)]
        index_cache = IndexCache(database, PageIndex, 2**33)
        finder = SearchService(database, index_cache)
        await finder.search(caller, SearchRequest("first"))
        started, memory_bytes, restarted = await _anew(back, folder, account.id)
        searched, cpu = await _searches(finder, caller, questions, "lexical")
        rows = [
            Row(f"{back}: import, with links and inference", imported, "pages per s"),
            Row(f"{back}: pages, versions and search entries only", filled, "pages per s"),
            Row(f"{back}: the first search, without a saved index", started, "s"),
            Row(f"{back}: the first search after a restart", restarted, "s", note="with a saved index"),
            Row(
                f"{back}: memory of the index",
                memory_bytes / 2**20,
                "MiB",
                note="PSS of a process that only reads it",
            ),
            of_samples(f"{back}: search, questions of six words", searched, "ms", cpu),
            of_samples(f"{back}: opening a folder of 2,000 folders", await _tree(database, caller), "ms"),
            of_samples(
                f"{back}: a write until search finds it", await _writes(database, finder, caller), "ms"
            ),
        ]
        behind = await _edits(database, finder, caller, texts)
        searched, cpu = await _searches(finder, caller, questions, "lexical")
        result = await _writes(database, finder, caller)
        edited = f"{back}: after {EDITS:,} edits"
        rows += [
            of_samples(f"{back}: the first search after {_AT_ONCE} edits", behind, "ms", "indexes them"),
            of_samples(f"{edited}, search, questions of six words", searched, "ms", cpu),
            of_samples(f"{edited}, a write until search finds it", result, "ms"),
        ]
        if back == "sqlite":
            rows += await _meaning(database, caller, questions)
            rows.append(_fts(folder / "sixfold.db", questions))
    return rows


async def _anew(back: str, folder: Path, account_id: str) -> tuple[float, float, float]:
    """Return the seconds and bytes of a server's first search, and the seconds with a saved index.

    They are measured in a new process.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, _alone, back, folder, account_id)


def _alone(back: str, folder: Path, account_id: str) -> tuple[float, float, float]:
    return asyncio.run(_first(Caller(account_id, "bench"), back, folder))


async def _first(caller: Caller, back: str, folder: Path) -> tuple[float, float, float]:
    async with databases.running_database(back, folder) as database:
        snapshots = IndexSnapshots(database, SnapshotFolder(folder / "indexes", 2**33))
        caches = [IndexCache(database, PageIndex, 2**33, snapshots) for _ in range(2)]
        seconds: list[float] = []
        before = after = 0
        for cache in caches:
            finder = SearchService(database, cache)
            # Import the modules that every search needs.
            await finder.search(Caller("nobody", "bench"), SearchRequest("first"))
            gc.collect()
            before, began = before or _pss(), time.perf_counter()
            await finder.search(caller, SearchRequest("first"))
            seconds.append(time.perf_counter() - began)
            after = after or _pss()
            await cache.save()
        return seconds[0], after - before, seconds[1]


async def _meaning(database: Database, caller: Caller, questions: Sequence[str]) -> list[Row]:
    """Measure exact cosines with 100,000 vectors in a separate index."""
    model = Noise()
    finder = SearchService(database, IndexCache(database, _with_vectors(model), 2**33), lambda: model)
    await finder.look()
    await finder.search(caller, SearchRequest("first"))
    seconds, cpu = await _searches(finder, caller, questions[:50], "hybrid")
    note = f"{cpu}; 100,000 vectors, embedding of the question not counted"
    return [of_samples("sqlite: search by words and vectors", seconds, "ms", note)]


def _with_vectors(model: Noise) -> type[PageIndex]:
    vector = model.embed([""])[0]
    half = halved(vector)

    class Vectored(PageIndex):
        """An index that assigns a vector to each page when the page is added."""

        def put_many(self, pages: Sequence[tuple[str, index.IndexEntry]], *, on_disk: bool = False) -> None:
            super().put_many(pages, on_disk=on_disk)
            for page_id, _ in pages:
                self.embed(page_id, half)

    return Vectored


def _fts(path: Path, questions: Sequence[str]) -> Row:
    """Measure SQLite's full-text index over the same pages, ranked by its BM25."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE fts USING fts5(title, body, tokenize='porter')")
    source = sqlite3.connect(path)
    for title, body in source.execute("SELECT title, body FROM page_version"):
        connection.execute("INSERT INTO fts VALUES (?, ?)", (title, body))
    seconds: list[float] = []
    spent = time.process_time()
    for question in questions:
        match = " OR ".join(f'"{word}"' for word in question.split())
        began = time.perf_counter()
        connection.execute(
            "SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rank LIMIT 10", (match,)
        ).fetchall()
        seconds.append(time.perf_counter() - began)
    cpu = f"{(time.process_time() - spent) / len(questions) * 1000:.1f} ms of CPU each"
    return of_samples("FTS5 in memory, BM25 alone, the same questions", seconds, "ms", cpu)


def _pss() -> int:
    """Return the proportional memory of this process in bytes."""
    text = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))) * 1024


def rows() -> list[Row]:
    results: list[Row] = []
    for back in ("sqlite", "postgres"):
        if back == "postgres" and postgres.LACKING:
            results.append(Row(f"{back}: skipped", 0, "", note=postgres.LACKING))
            continue
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
            folder = Path(name)
            if back == "postgres":  # with durable commits, like SQLite
                result = postgres.Databases(folder / "server", careful=True)
                (folder / backends.DATABASE_FILE).write_text(result.lend(), "utf-8")
            results += asyncio.run(_on(back, folder))
    return calibration() + results
