"""Measure MCP tool calls beside the official SDK's server, and link inference on pages.

.venv/bin/python -m bench agents
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from bench.reporting import Row, calibration, of_samples
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.relation_extraction import extraction
from sixfold.core.memory.relation_extraction import service as inference
from tests.api.app_fixture import AppFixture, running_app

TITLE = "Agents: tools and links from sentences"
PAGES, CALLS, READS = 200, 300, 50
CORPUS = Path("tests/corpora/relations/tuned.toml")
FILLER = (
    "The wind came from the west that evening, and the harbour was quiet. We walked along the quay until the "
    "lamps were lit, and nobody knew how long it would take. "
)


async def call(app: ASGIApp, headers: dict[str, str], method: str, **params: Any) -> bytes:
    """Send one message through an application without a socket."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/mcp",
        "raw_path": b"/mcp", "query_string": b"", "scheme": "http", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8600),
    }  # fmt: skip
    messages: list[bytes] = []
    unread = [body]

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(messages)


async def measure_time(work: Callable[[], Any], times: int) -> list[float]:
    """Return the processor time of each call in seconds, which other work on the machine hardly affects."""
    samples: list[float] = []
    for _ in range(times + 10):
        began = time.process_time()
        await work()
        samples.append(time.process_time() - began)
    return samples[10:]


async def sixfold_rows(app: AppFixture) -> list[Row]:
    """Measure Sixfold's MCP server on a memory with some pages."""
    headers = {"host": "127.0.0.1:8600", "content-type": "application/json", **{
        name.lower(): value for name, value in app.bearer.items()
    }}  # fmt: skip
    for number in range(PAGES):
        page = {"slug": f"people/p{number}", "title": f"Ann N{number}", "type": "person"}
        arguments = {**page, "body": f"Ann N{number} works at Acme. {FILLER * 8}"}
        await call(app.asgi, headers, "tools/call", name="write", arguments=arguments)
    rows: list[Row] = []
    for name, method, params in (
        ("ping", "ping", {}),
        ("tools/list", "tools/list", {}),
        ("read a page of 1.4 kB", "tools/call", {"name": "read", "arguments": {"slug": "people/p7"}}),
        ("search", "tools/call", {"name": "search", "arguments": {"query": "quiet harbour", "limit": 5}}),
    ):
        samples = await measure_time(lambda m=method, p=params: call(app.asgi, headers, m, **p), CALLS)
        rows.append(of_samples(name, samples, "µs", "CPU; key, tool and database"))
    return rows


async def sdk_rows() -> list[Row]:
    """Measure the official SDK's server, stateless and without logs, with a tool that does not read data."""
    logging.getLogger("mcp").setLevel(logging.ERROR)
    from mcp.server import MCPServer

    server = MCPServer("bench")

    @server.tool()
    def read(slug: str) -> dict[str, str]:
        return {"slug": slug, "body": "x" * 1400}

    app = server.streamable_http_app(stateless_http=True, json_response=True)
    headers = {
        "host": "127.0.0.1:8600",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    rows: list[Row] = []
    async with app.router.lifespan_context(app):
        for name, method, params in (
            ("ping, official SDK", "ping", {}),
            (
                "a tool without a database, official SDK",
                "tools/call",
                {"name": "read", "arguments": {"slug": "a"}},
            ),
        ):
            samples = await measure_time(lambda m=method, p=params: call(app, headers, m, **p), CALLS)
            rows.append(of_samples(name, samples, "µs", "CPU; without a key or a database"))
    return rows


def extraction_rows() -> list[Row]:
    """Measure the extraction of facts from pages with a fact in every second paragraph."""
    facts = [item["text"] for item in tomllib.loads(CORPUS.read_text("utf-8"))["item"]]
    parts = [FILLER + (fact if number % 2 else "") for number, fact in enumerate(facts * 4)]
    rows: list[Row] = []
    for size in (1_000, 5_000):
        text = "\n\n".join(parts)[:size]
        page = MemoryPage("p", "a", "notes/x", "X", text, "note", (), (), 1, 0, 0, "bench")
        content = extraction.read(page, inference.table())  # compiles the patterns that the page needs
        samples: list[float] = []
        for _ in range(READS):
            began = time.process_time()
            extraction.read(page, inference.table())
            samples.append(time.process_time() - began)
        note = f"CPU; {len(content)} statements"
        rows.append(of_samples(f"read {size:,} characters for links", samples, "µs", note))
    began = time.process_time()
    for _ in range(1_000):
        inference.forms().read("how do I configure the billing service for staging")
    spent = time.process_time() - began
    rows.append(Row("a query without a relation", spent * 1e3, "µs", note="CPU"))
    return rows


async def _rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder)) as app:
            tools = await sixfold_rows(app)
    return [*calibration(), *tools, *await sdk_rows(), *extraction_rows()]


def rows() -> list[Row]:
    return asyncio.run(_rows())
