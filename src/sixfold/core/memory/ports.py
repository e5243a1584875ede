"""What the memory needs of others: search, as its faces ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sixfold.core.memory.models import Caller

Mode = Literal["auto", "lexical", "semantic", "hybrid"]
MODES: tuple[Mode, ...] = ("auto", "lexical", "semantic", "hybrid")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question and its filters: a page must have one of `types`, one of `tags`, one of `collections`.

    `since` and `until` bound the time of the last change, in epoch µs.
    """

    query: str
    limit: int = 10
    offset: int = 0
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    mode: Mode = "auto"
    snippet_chars: int = 300
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that was found, with the passage that speaks for it; `explain` has every part of the score."""

    id: str
    slug: str
    title: str
    type: str
    tags: tuple[str, ...]
    collections: tuple[str, ...]
    score: float
    snippet: str
    updated_at: int
    explain: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, best first, and the mode that was used."""

    hits: tuple[Hit, ...]
    mode: Mode
    took_ms: float


class Searcher(Protocol):
    """Finds pages; reads what the last write wrote."""

    async def search(self, caller: Caller, wanted: SearchRequest) -> SearchResult:
        """The best pages that `caller` sees; raises `EngineUnavailable` for a mode that needs a model."""
        ...
