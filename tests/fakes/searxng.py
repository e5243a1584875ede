"""Fake SearXNG server on loopback: its results, the requests it received, and its faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes.fault_server import Faults, serve

ROWS: list[dict[str, Any]] = [
    {"url": "https://birds.example/quagga", "title": "The quagga", "content": "The quagga died out in 1883."},
    {"url": "https://zoo.example/okapi", "title": "Okapi", "content": "The okapi lives."},
    {"url": "https://a.zoo.example/zebra", "title": "Zebra", "content": "Zebras have stripes."},
    {"url": "https://horses.example/", "title": "Horses", "content": "Horses run."},
]


@dataclass
class SearxngServer:
    """Fake server; `rows` are its results."""

    url: str = ""
    rows: list[Any] = field(default_factory=lambda: list(ROWS))
    queries: list[str] = field(default_factory=list[str])
    faults: Faults = field(default_factory=Faults)

    async def search(self, request: Request) -> Response:
        """Answer a search as JSON, or as HTML if the format is not set."""
        self.queries.append(request.query_params["q"])
        if (fault := await self.faults.take("search", request)) is not None:
            return fault
        if request.query_params.get("format") != "json":
            return Response("<html>results</html>", media_type="text/html")
        return JSONResponse(
            {"query": request.query_params["q"], "results": self.rows, "unresponsive_engines": []}
        )


@asynccontextmanager
async def searxng_server() -> AsyncIterator[SearxngServer]:
    server = SearxngServer()
    async with serve([Route("/search", server.search)]) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
