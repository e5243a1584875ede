"""Web search for models whose server does not search: in responses and in chat completions.

The last message of the user is searched once, before the model answers. The model cites a result by its
number in brackets, which becomes an annotation of type `url_citation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold.api.gateway import chat_memory
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.gateway.search.results import WebFindings
from sixfold.core.gateway.search.service import MAX_RESULTS, RESULTS, WebSearch
from sixfold.core.input_limits import byte_search
from sixfold.web import bodies

_TOOL = re.compile(r"web_search(?:_preview)?(?:_\d{4}_\d{2}_\d{2})?")
_OPTIONS = "web_search_options"
_NAME = re.compile(rb'"web_search')
_SOURCES = "web_search_call.action.sources"
_SIZES: Mapping[Any, int] = {"low": 3, "medium": RESULTS, "high": MAX_RESULTS}
_MAX_DOMAINS = 100


class WebSearchOutput(msgspec.Struct, frozen=True):
    """A search that was run; `with_sources` if the caller wants the URLs of all results."""

    findings: WebFindings
    with_sources: bool = False
    kind: str = "web_search_call"
    prefix: str = "ws"

    def item(self) -> dict[str, Any]:
        query = self.findings.query
        action: dict[str, Any] = {"type": "search", "query": query, "queries": [query]}
        if self.with_sources:
            action["sources"] = [{"type": "url", "url": result.url} for result in self.findings.results]
        return {"type": self.kind, "action": action}

    def annotations(self, text: str) -> list[dict[str, Any]]:
        return [
            {"type": "url_citation", **msgspec.structs.asdict(citation)}
            for citation in self.findings.citations(text)
        ]


class WebSearchTool:
    """Runs web searches for models whose server cannot search."""

    def __init__(self, search: WebSearch, router: ModelRouter) -> None:
        self._search = search
        self._router = router

    async def run(
        self, principal: Principal, request_id: str, raw: bytes, wire: str, first: int = 1
    ) -> tuple[WebSearchOutput, bytes] | None:
        """Return the search and the request with its results, or None if this server does not search.

        `first` is the number of the first result. Raises `InvalidRequest` and the errors of
        `WebSearch.search`.
        """
        if not self._search.available or not byte_search.may_have_name(_NAME, raw):
            return None
        body = await bodies.parse(bodies.parse_object, raw)
        options = _options(body, wire)
        if options is None or self._router.searches_web(str(body.get("model", "")), wire):
            return None
        size = options.get("search_context_size") or "medium"
        if size not in _SIZES:
            raise InvalidRequest(
                f"search_context_size must be low, medium or high (got {str(size)[:40]!r})",
                param="search_context_size",
            )
        domains = _domains(options)
        limit = MAX_RESULTS if domains else _SIZES[size]
        query = chat_memory.last_question(body, wire)
        query, results = await self._search.search(principal, request_id, query, limit)
        if domains:
            results = tuple(result for result in results if result.is_on(domains))
        findings = WebFindings(query, results[: _SIZES[size]], first)
        include = body.get("include")
        sources = _SOURCES in cast("list[Any]", include) if isinstance(include, list) else False
        output = WebSearchOutput(findings, sources)
        return output, await bodies.parse(lambda _: _with_results(body, wire, findings), raw)


def _options(body: Mapping[str, Any], wire: str) -> Mapping[str, Any] | None:
    """Return the options of the requested search, or None; a server ignores invalid tools."""
    if wire == "chat":
        options = body.get(_OPTIONS)
        return None if options is None else parsing.mapping(options, _OPTIONS)
    rows = parsing.items(body.get("tools") or [], "tools")
    return next((row for row in rows if _is_search(row)), None)


def _is_search(row: Any) -> bool:
    kind = cast("dict[str, Any]", row).get("type") if isinstance(row, dict) else None
    return isinstance(kind, str) and _TOOL.fullmatch(kind) is not None


def _domains(options: Mapping[str, Any]) -> Sequence[str]:
    filters = parsing.mapping(options.get("filters") or {}, "filters")
    domains = parsing.items(filters.get("allowed_domains") or [], "filters.allowed_domains")
    if len(domains) > _MAX_DOMAINS or not all(isinstance(domain, str) for domain in domains):
        raise InvalidRequest(
            f"filters.allowed_domains must have at most {_MAX_DOMAINS} domains",
            param="filters.allowed_domains",
        )
    return [domain.lower() for domain in cast("list[str]", domains)]


def _with_results(body: dict[str, Any], wire: str, findings: WebFindings) -> bytes:
    """Return a request with the results in its instructions, and without the tool or the option."""
    changed = {name: value for name, value in body.items() if name != _OPTIONS}
    if wire == "responses":
        changed["tools"] = [row for row in body["tools"] if not _is_search(row)]
        if _is_search(body.get("tool_choice")):
            del changed["tool_choice"]
    chat_memory.insert(changed, wire, findings.context())
    return parsing.encode(changed)
