"""The search port of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from sixfold.core.memory.models import Caller

Mode = Literal["auto", "lexical", "semantic", "hybrid"]
MODES: tuple[Mode, ...] = ("auto", "lexical", "semantic", "hybrid")


class SearchRequest(msgspec.Struct, frozen=True):
    """A query and its filters: a page must have one of the `types`, `tags` and `collections`.

    `since` and `until` limit the time of the last change, in epoch µs.
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
    # Whether snippets mark the matched words.
    marked: bool = True
    explain: bool = False
    # Whether the last word is still being typed, so that words that begin with it are found.
    partial: bool = False


class Hit(msgspec.Struct, frozen=True):
    """A search result: a page with its best passage; `explain` contains every part of the score.

    `citation` contains the file and page of a passage of an imported document, or is empty.
    """

    id: str
    slug: str
    title: str
    type: str
    tags: tuple[str, ...]
    collections: tuple[str, ...]
    score: float
    snippet: str
    updated_at: int
    citation: str = ""
    explain: Mapping[str, Any] | None = None


class SearchResult(msgspec.Struct, frozen=True):
    """The hits, best first, and the search mode."""

    hits: tuple[Hit, ...]
    mode: Mode
    took_ms: float


class Searcher(Protocol):
    """Finds pages, including those of the latest committed write."""

    async def search(self, caller: Caller, request: SearchRequest) -> SearchResult:
        """Return the best pages that `caller` can see.

        Raises `EngineUnavailable` if a mode requires an embedding model that is not available.
        """
        ...
