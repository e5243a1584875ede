"""A client of a SearXNG server's JSON search (https://docs.searxng.org/dev/search_api.html)."""

from __future__ import annotations

import re
from urllib.parse import urlencode, urlsplit

import msgspec

from sixfold import errors
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.search.results import WebResult
from sixfold.core.gateway.search.service import MAX_RESULTS, SearchEngineStatus, SearchUnavailable
from sixfold.net.fetch import Fetcher, FetchResponse

# Maximum size of a response; SearXNG sends 20 to 50 KB.
_MAX_BYTES = 2**20
# Maximum number of rows; a page of results has about 30.
_MAX_ROWS = 1000
_TITLE_CHARS, _TEXT_CHARS, _URL_CHARS = 200, 1500, 2000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")
_PROBE_SECONDS = 3.0
_PROBE_QUERY = "searxng"


class _SearchResultRow(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _Answer(msgspec.Struct):
    results: list[_SearchResultRow]


_decode = msgspec.json.Decoder(_Answer).decode


class SearxngClient:
    """A client of one SearXNG server, whose URL the operator has configured."""

    def __init__(self, fetcher: Fetcher, url: str, timeout_seconds: float) -> None:
        self._fetcher = fetcher
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self.status = SearchEngineStatus("absent", self._url, "it was not probed yet")

    async def probe(self) -> None:
        """Search once and set `status`: only a search shows whether the server returns JSON."""
        try:
            await self._search(_PROBE_QUERY, _PROBE_SECONDS)
        except SearchUnavailable as error:
            state = "slow" if "longer than" in error.message else "absent"
            self.status = SearchEngineStatus(state, self._url, error.message)
        else:
            self.status = SearchEngineStatus("found", self._url)

    async def search(self, query: str) -> tuple[WebResult, ...]:
        return await self._search(query, self._timeout_seconds)

    async def _search(self, query: str, seconds: float) -> tuple[WebResult, ...]:
        address = f"{self._url}/search?{urlencode({'q': query, 'format': 'json'})}"
        headers = {"accept": "application/json", "accept-language": "*"}
        try:
            response = await self._fetcher.send(
                "GET", address, headers=headers, timeout_seconds=seconds, max_bytes=_MAX_BYTES
            )
        except errors.SixfoldError as error:
            reason = error.message.partition(": ")[2] or error.message
            raise SearchUnavailable(f"The web search failed: {reason.rstrip('.')}") from error
        if response.status != 200:
            raise SearchUnavailable(f"The web search failed: {_reason(response.status)}")
        return await PARSER.run(_parse, response)


def _reason(status: int) -> str:
    if status == 403:
        return "SearXNG returned status 403: add json to search.formats of its settings.yml"
    if status == 429:
        return "SearXNG returned status 429: configure its limiter to allow this server"
    return f"SearXNG returned status {status}"


def _parse(response: FetchResponse) -> tuple[WebResult, ...]:
    """Return the first results with an HTTP URL."""
    try:
        rows = _decode(response.body).results[:_MAX_ROWS]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        kind = response.headers.get("content-type", "").partition(";")[0][:50]
        raise SearchUnavailable(
            f"The web search failed: SearXNG did not return JSON results (content type: {kind or 'missing'})"
        ) from error
    candidates = (_result(row) for row in rows)
    return tuple(dict.fromkeys(result for result in candidates if result is not None))[:MAX_RESULTS]


def _result(row: _SearchResultRow) -> WebResult | None:
    """Return a result with a single-line title, or None if its URL is not an HTTP URL."""
    url = (row.url or "").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if len(url) > _URL_CHARS or parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    if _CONTROLS.search(url) or " " in url or ">" in url:
        return None
    title = _CONTROLS.sub(" ", row.title or "").strip()[:_TITLE_CHARS]
    return WebResult(title or parts.hostname, url, (row.content or "").strip()[:_TEXT_CHARS])
