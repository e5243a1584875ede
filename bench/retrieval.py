"""Measure search over HTTP beside FTS5 and basic-memory on the same pages and questions.

.venv/bin/python -m bench retrieval

The corpora are LoCoMo's conversations, where available, and the project's wiki: pages are written by
POST /api/pages, and questions are sent to POST /api/search. The weights were tuned on conversations 26, 30
and 41 and on half of the wiki's questions; 42 and 43 were not used. MiniLM is measured where `sixfold
engines add embeddings` can download it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from bench import quality
from bench.quality import Ask, Corpus, Quality
from bench.reporting import Row, calibration
from sixfold.core.accounts import accounts, keys
from tests.api.app_fixture import AppFixture, bearer, running_app

TITLE = "Retrieval"
PEER = "basic-memory 0.22.1"
_PEER_PACKAGES = ("basic-memory==0.22.1", "fastmcp==3.3.1")  # the newest compatible versions
_SHARED = 5  # with this number of pages per title or more, slugs are better titles for the peer
_EMBED_SECONDS = 3600.0
_INSTALL_SECONDS = 900

Judged = tuple[float, float, float, float]


def corpora() -> dict[str, tuple[Corpus, ...]]:
    """Return the measured corpora by name."""
    result = {
        "LoCoMo 42, 43 (unseen)": quality.locomo(quality.UNSEEN),
        "LoCoMo 26, 30, 41 (tuned on)": quality.locomo(quality.TUNING),
        "own wiki": quality.own(),
        "our reference work": quality.islands(),
    }
    return {name: parts for name, parts in result.items() if parts}


# -- Sixfold -------------------------------------------------------------------------------------


async def write(server: AppFixture, corpus: Corpus) -> str:
    """Write a corpus page by page into the memory of a new account, and return its key."""
    account = await server.database.write(accounts.create(f"{corpus.name}@example.com", credit=0))
    key = (await server.database.write(keys.create(account.id))).api_key
    for note in corpus.notes:
        page = {"slug": note.slug, "title": note.title, "body": note.body, "type": note.type}
        answer = await server.client.post("/api/pages", json=page, headers=bearer(key))
        assert answer.status_code == 201, answer.text
    return key


def asking(client: httpx.AsyncClient, key: str, mode: str) -> Ask:
    async def ask(question: str) -> Sequence[str]:
        sent = {"query": question, "limit": quality.DEPTH, "mode": mode}
        answer = await client.post("/api/search", json=sent, headers=bearer(key))
        assert answer.status_code == 200, answer.text
        return [result["slug"] for result in answer.json()["results"]]

    return ask


@asynccontextmanager
async def _sixfold(folder: Path) -> AsyncIterator[AppFixture]:
    async with running_app(folder, probe=False) as server:
        yield server


async def _ours(folder: Path, measured: dict[str, tuple[Corpus, ...]], *, meaning: bool) -> list[Row]:
    rows: list[Row] = []
    async with _sixfold(folder) as server:
        writing = {
            corpus.name: await write(server, corpus) for parts in measured.values() for corpus in parts
        }
        if meaning:
            await _embed_all(server)
        mode, name = ("hybrid", "Sixfold, words and MiniLM") if meaning else ("lexical", "Sixfold, words")
        for group, parts in measured.items():
            judged, seconds = list[Judged](), list[float]()
            for corpus in parts:
                ask = _measure_time(asking(server.client, writing[corpus.name], mode), seconds)
                judged += await quality.measure(corpus, ask)
            rows.append(_row(group, name, quality.mean(judged), seconds))
    return rows


async def _embed_all(server: AppFixture) -> None:
    """Wait until the vectors of every page are stored."""
    async with asyncio.timeout(_EMBED_SECONDS):
        while await server.server.memory_search.waiting():  # noqa: ASYNC110  # it works in the background
            await asyncio.sleep(1)


def _measure_time(ask: Ask, seconds: list[float]) -> Ask:
    async def measure_time(question: str) -> Sequence[str]:
        began = time.perf_counter()
        result = await ask(question)
        seconds.append(time.perf_counter() - began)
        return result

    return measure_time


# -- others --------------------------------------------------------------------------------------


def _fts(measured: dict[str, tuple[Corpus, ...]]) -> list[Row]:
    """Search by SQLite's FTS5 with Porter's stems: any word of the question, ranked by BM25."""
    rows: list[Row] = []
    for group, parts in measured.items():
        judged, seconds = list[Judged](), list[float]()
        for corpus in parts:
            connection = sqlite3.connect(":memory:")
            connection.execute("CREATE VIRTUAL TABLE fts USING fts5(slug UNINDEXED, text, tokenize='porter')")
            connection.executemany(
                "INSERT INTO fts VALUES (?, ?)",
                [(note.slug, f"{note.title}\n{note.body}") for note in corpus.notes],
            )
            request = asyncio.run(quality.measure(corpus, _measure_time(_fts_ask(connection), seconds)))
            judged += request
        rows.append(_row(group, "FTS5 BM25", quality.mean(judged), seconds))
    return rows


def _fts_ask(connection: sqlite3.Connection) -> Ask:
    async def ask(question: str) -> Sequence[str]:
        words = "".join(char if char.isalnum() else " " for char in question).split()
        match = " OR ".join(f'"{word}"' for word in words)
        query = "SELECT slug FROM fts WHERE fts MATCH ? ORDER BY rank LIMIT 10"
        return [row[0] for row in connection.execute(query, (match,))]

    return ask


_PEER_DRIVER = """
import asyncio, json, sys, time
from basic_memory.mcp.tools import search_notes

async def main():
    search = getattr(search_notes, "fn", search_notes)
    for line in sys.stdin:
        began = time.perf_counter()
        found = await search(query=json.loads(line), project="bench", page_size=10, search_type="text",
                             output_format="json")
        rows = found.get("results", []) if isinstance(found, dict) else []
        seconds = time.perf_counter() - began
        print("BENCH" + json.dumps([[row.get("permalink") or "" for row in rows], seconds]), flush=True)

asyncio.run(main())
"""


def _peer_python() -> str | None:
    """Return a Python 3.12 or newer, from the path or pyenv, for basic-memory, or None if it is missing."""
    named = (shutil.which(name) for name in ("python3.14", "python3.13", "python3.12", "python3"))
    remaining = sorted((Path.home() / ".pyenv" / "versions").glob("3.1[2-9]*/bin/python3"), reverse=True)
    code = "import sys; raise SystemExit(sys.version_info < (3, 12))"
    for path in (*named, *map(str, remaining)):
        if path and subprocess.run([path, "-c", code], capture_output=True, check=False).returncode == 0:
            return path
    return None


class _Peer:
    """basic-memory in a separate environment with separate files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "peer" / "bin"
        self.environ = {
            "HOME": str(folder / "home"),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "NO_COLOR": "1",
            "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
        }

    def install(self) -> str:
        """Install the peer; return the reason of a failure, or an empty string."""
        python = _peer_python()
        if python is None:
            return "it needs Python 3.12, which is not here"
        subprocess.run([python, "-m", "venv", self.folder / "peer"], check=True, timeout=_INSTALL_SECONDS)
        done = subprocess.run(
            [self.bin / "pip", "install", "--quiet", *_PEER_PACKAGES],
            capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS,
        )  # fmt: skip
        return "" if done.returncode == 0 else "pip could not install it"

    def measure(self, corpus: Corpus) -> tuple[list[Judged], list[float]]:
        """Write the pages as files, index them, and return the scores and seconds of every question."""
        shutil.rmtree(self.folder / "home", ignore_errors=True)
        home = self.folder / "home" / "notes"
        unique_titles = _has_unique_titles(corpus)
        for note in corpus.notes:
            path = home / f"{note.slug}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            # basic-memory gives titles the highest weight. If ten pages share a title, a slug as the title
            # triples the matches; if two pages do, as in the wiki, it loses a twelfth of them.
            title = json.dumps(note.title if unique_titles else note.slug.replace("/", " "))
            head = f"---\ntitle: {title}\npermalink: {note.slug}\ntype: note\n---\n\n"
            path.write_text(f"{head}{note.body}\n", "utf-8")
        self._run("project", "add", "bench", str(home))
        self._run("project", "default", "bench")
        self._run("reindex", "--search", "--project", "bench")
        lines = "".join(json.dumps(case.question) + "\n" for case in corpus.cases)
        done = subprocess.run(
            [self.bin / "python", "-c", _PEER_DRIVER], input=lines, env=self.environ,
            capture_output=True, text=True, check=True, timeout=3600,
        )  # fmt: skip
        answers: list[Any] = [
            json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("BENCH")
        ]
        judged = [
            quality.judge([_without_project(link) for link in links], case.answers)
            for (links, _), case in zip(answers, corpus.cases, strict=True)
        ]
        return judged, [seconds for _, seconds in answers]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / "basic-memory", *arguments], env=self.environ,
            capture_output=True, text=True, check=False, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-2000:])


def _has_unique_titles(corpus: Corpus) -> bool:
    """Return whether few pages share a title, as in a wiki and unlike in a dialogue."""
    return len({note.title for note in corpus.notes}) * _SHARED > len(corpus.notes)


def _without_project(permalink: str) -> str:
    return permalink.removeprefix("bench/")


def _peer(measured: dict[str, tuple[Corpus, ...]]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        peer = _Peer(Path(folder))
        try:
            reason = peer.install()
            if reason:
                return [Row(f"{PEER}: skipped", 0, "", note=reason)]
            rows: list[Row] = []
            for group, parts in measured.items():
                judged, seconds = list[Judged](), list[float]()
                for corpus in parts:
                    result, took = peer.measure(corpus)
                    judged += result
                    seconds += took
                row = _row(group, f"{PEER}, text search", quality.mean(judged), seconds)
                named = "" if all(map(_has_unique_titles, parts)) else "; slugs for titles"
                rows.append(dataclasses.replace(row, note=row.note + named))
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            return [Row(f"{PEER}: skipped", 0, "", note=str(error)[:200].replace("|", "/"))]
        return rows


# -- the table -----------------------------------------------------------------------------------


def _row(group: str, name: str, found: Quality, seconds: Sequence[float]) -> Row:
    note = (
        f"R@5 {found.recall_5:.3f}, MRR {found.mrr:.3f}, nDCG@10 {found.ndcg:.3f}, "
        f"{statistics.median(seconds) * 1000:.1f} ms, {found.questions} questions"
    )
    return Row(f"{group}: {name}", 100 * found.recall_10, "% R@10", note=note)


def _fetch(folder: Path) -> str:
    """Install MiniLM into a data folder as a user does; return the reason of a failure, or ""."""
    command = [sys.executable, "-m", "sixfold.cli.main", "engines", "add", "embeddings"]
    done = subprocess.run(
        [*command, "--data-dir", str(folder)],
        capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr.strip()[-160:]


def rows() -> list[Row]:
    measured = corpora()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        result = asyncio.run(_ours(Path(folder) / "words", measured, meaning=False))
        missing = _fetch(Path(folder) / "meaning")
        if missing:
            result.append(Row("Sixfold, words and MiniLM: skipped", 0, "", note=missing))
        else:
            result += asyncio.run(_ours(Path(folder) / "meaning", measured, meaning=True))
    result += _fts(measured)
    result += _peer(measured)
    return calibration() + sorted(result, key=lambda row: row.name.partition(":")[0])
