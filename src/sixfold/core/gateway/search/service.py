"""Web search for accounts, with limits, after the account's guardrail has checked the query."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency.account_limit import AccountLimit
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.search.results import WebResult

MAX_RESULTS, RESULTS = 10, 5
# A longer query is reduced to its end, which contains the question of a message.
QUERY_CHARS = 400
# Concurrent searches of one account, and of all accounts.
_PER_ACCOUNT, _AT_ONCE = 4, 32
# The name that a key limited to services must include.
SERVICE = "web_search"


class SearchUnavailable(errors.SixfoldError):
    """The web search failed."""

    status = 503
    code = "search_unavailable"


class SearchEngineStatus(msgspec.Struct, frozen=True):
    """The status of a search engine; `detail` is the reason if it does not respond."""

    state: Literal["found", "slow", "absent"]
    url: str
    detail: str = ""


class SearchEngine(Protocol):
    """A search engine that the operator has configured."""

    @property
    def status(self) -> SearchEngineStatus:
        """The result of the last probe."""
        ...

    async def probe(self) -> None: ...

    async def search(self, query: str) -> tuple[WebResult, ...]:
        """Return the results, best first; raises `SearchUnavailable`."""
        ...


class WebSearch:
    """Web search, which is available if the operator has configured a search engine.

    The operator can replace `engine` while the server runs.
    """

    def __init__(self, engine: SearchEngine | None, gateway: Gateway) -> None:
        self.engine = engine
        self._gateway = gateway
        self._limit = AccountLimit(_PER_ACCOUNT, "web searches")
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def available(self) -> bool:
        """Whether the operator has configured a search engine."""
        return self.engine is not None

    async def search(
        self, principal: Principal, request_id: str, text: str, limit: int = RESULTS
    ) -> tuple[str, tuple[WebResult, ...]]:
        """Return the query as sent, and its results.

        Raises `Forbidden` for a key whose limit on models does not include `SERVICE`, and
        `SearchUnavailable`, `TooManyRequests`, `GuardrailBlocked` and `GuardrailUnavailable`.
        """
        engine = self.engine
        if engine is None:
            raise SearchUnavailable("Web search is not configured: the operator can add a SearXNG server")
        principal.permit(SERVICE)
        query = " ".join(text[-4 * QUERY_CHARS :].split())[-QUERY_CHARS:]
        if not query:
            return "", ()
        with self._limit.running(principal.account_id):
            if self._gateway.guardrails is not None:
                query = await self._gateway.guardrails.check_text(principal, request_id, SERVICE, query)
            async with self._slots:
                results = await engine.search(query)
        return query, results[:limit]
