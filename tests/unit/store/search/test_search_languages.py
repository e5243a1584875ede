"""Languages of a memory's pages, which decide whether a search looks for compounds, are detected once."""

from __future__ import annotations

import pytest

from sixfold.core.memory.indexing.entries import decode, encode, entry
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.search import compounds
from sixfold.store.search.index import PageIndex
from sixfold.store.search.query_view import PageView


def put(index: PageIndex, number: int, body: str) -> None:
    page = MemoryPage(
        id=f"page_{number}", account_id="acct_a", slug=f"notes/{number}", title=f"Note {number}", type="note",
        tags=(), collections=(), version=1, created_at=number, updated_at=number, created_by="ann", body=body,
    )  # fmt: skip
    indexed = decode(encode(entry(page, ())))
    assert indexed is not None
    index.put(page.id, indexed)


def test_languages_are_detected_once_until_the_pages_change(monkeypatch: pytest.MonkeyPatch) -> None:
    index, requested, rarity = PageIndex(), list[str](), PageView.rarity
    monkeypatch.setattr(PageView, "rarity", lambda view, word: requested.append(word) or rarity(view, word))
    put(index, 1, "Invoice of the hospital.")
    for _ in range(2):
        assert compounds.expand(index.view(()), ["rechnung"], "rechnung") == {}
    assert requested.count("ikke") == 1
    put(index, 2, "Die Krankenhausrechnung und der Bericht.")
    assert "krankenhausrechnung" in compounds.expand(index.view(()), ["rechnung"], "rechnung")
