"""After any history, the index in memory equals an index rebuilt from the stored rows."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sixfold.core.memory.indexing.entries import decode, encode, entry
from sixfold.core.memory.models import Link, MemoryPage
from sixfold.core.memory.search import query_parser, ranking
from sixfold.core.memory.search.embedding import halved
from sixfold.core.memory.search.index_snapshots import SnapshotName
from sixfold.core.memory.search.ports import SearchFilter
from sixfold.store.search.index import PageIndex
from sixfold.store.search.snapshot_files import SnapshotFolder
from tests.unit.memory.fake_embedder import Meanings

IDS = st.sampled_from([f"page_{n}" for n in range(9)])
WORDS = st.lists(
    st.sampled_from(["tea", "honey", "milk", "boat", "lake", "night", "Ann", "Ben", "東京", "7", "why?"]),
    max_size=12,
)
FOLDERS = st.sampled_from(["log/{}", "talk/one/{}", "people/ann-{}", "{}", "lake/boat/d1-{}"])
INDEXES = st.lists(st.sampled_from(["public", "private"]), max_size=2, unique=True)
QUERIES = ("Where did Ann drink tea?", "lake boat", "東京", "honey milk night Ben 7 why")
MODEL = Meanings()
SNAPSHOT = SnapshotName("a", 1, "0" * 16)


class Histories(RuleBasedStateMachine):
    """Pages are written, overwritten, moved, linked, embedded and deleted in any order.

    Between these changes, the index is saved and restored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index = PageIndex()
        self.pages: dict[str, MemoryPage] = {}
        self.links: dict[str, set[str]] = {}
        self.vectors: dict[str, bytes] = {}
        self.clock = 0

    @rule(page_id=IDS, words=WORDS, folder=FOLDERS, indexes=INDEXES, long=st.booleans())
    def write(self, page_id: str, words: list[str], folder: str, indexes: list[str], long: bool) -> None:
        self.clock += 1
        body = " ".join(words) + (
            "\n\n## Again\n\n" + "and so on it goes " * 90 + " ".join(words) if long else ""
        )
        before = self.pages.get(page_id)
        page = MemoryPage(
            id=page_id, account_id="a", slug=folder.format(page_id[-1]), title=" ".join(words[:2]), body=body,
            type="note", tags=(), collections=tuple(indexes), version=1,
            created_at=before.created_at if before else self.clock, updated_at=self.clock, created_by="",
        )  # fmt: skip
        self.pages[page_id] = page
        self.vectors.pop(page_id, None)
        self.links.setdefault(page_id, set())
        self._put(self.index, page_id)

    @rule(page_id=IDS)
    def delete(self, page_id: str) -> None:
        self.pages.pop(page_id, None)
        self.vectors.pop(page_id, None)
        self.links.pop(page_id, None)
        self.index.remove(page_id)

    @rule(source=IDS, other=IDS)
    def link(self, source: str, other: str) -> None:
        """Link a page to another one, which may not exist yet."""
        if source in self.pages:
            self.links[source].add(other)
            # An entry contains the names of its links, so a new link needs a new vector.
            self.vectors.pop(source, None)
            self._put(self.index, source)

    @rule(page_id=IDS)
    def embed(self, page_id: str) -> None:
        """Store the vector of a page, for the first time or again."""
        if page_id in self.pages:
            self.vectors[page_id] = _halves(self.pages[page_id].body)
            self.index.embed(page_id, self.vectors[page_id])

    @rule()
    def restart(self) -> None:
        """Continue with a snapshot of the index, into which the vectors are read again."""
        with tempfile.TemporaryDirectory() as folder:
            files = SnapshotFolder(Path(folder), 2**30)
            assert files.write(SNAPSHOT, self.index)
            restored = files.read(SNAPSHOT)
        assert restored is not None
        self.index = restored
        for page_id, vectors in self.vectors.items():
            self.index.embed(page_id, vectors)

    @invariant()
    def rebuilt_index_gives_the_same_results(self) -> None:
        """Every search returns the same results and score parts, in whatever order pages are read."""
        fresh = PageIndex()
        for page_id in reversed(self.pages):
            self._put(fresh, page_id)
        for page_id, vectors in self.vectors.items():
            fresh.embed(page_id, vectors)
        assert len(self.index) == len(fresh) == len(self.pages)
        assert self.index.vectors == fresh.vectors == len(self.vectors)
        for query in QUERIES:
            for indexes in ((), ("public",)):
                assert _answer(self.index, query, indexes) == _answer(fresh, query, indexes)

    def _put(self, index: PageIndex, page_id: str) -> None:
        page = self.pages[page_id]
        links = [Link(page.slug, target) for target in sorted(self.links[page_id])]
        remaining = decode(encode(entry(page, links)))
        assert remaining is not None
        index.put(page_id, remaining)
        index.link(page_id, self.links[page_id])


def _halves(text: str) -> bytes:
    return halved(MODEL.embed([text])[0])


def _answer(index: PageIndex, query: str, indexes: tuple[str, ...]) -> list[tuple[str, Mapping[str, Any]]]:
    view = index.view(indexes)
    question = query_parser.parse_query(view, query, MODEL.embed([query])[0])
    ranked = ranking.rank(view, question)
    documents = view.best(ranked.score, ranked.candidates, SearchFilter(), 5)
    return [
        (
            view.page_id(document),
            {name: round(response, 5) for name, response in ranked.score_parts(view, document).items()},
        )
        for document in documents
    ]


Histories.TestCase.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=20, deadline=None
)
TestHistories = pytest.mark.timeout(300)(Histories.TestCase)
