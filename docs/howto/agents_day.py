"""An agent's day with a memory: it writes, links, tags, searches and reads; a user corrects a page.

SIXFOLD_API_KEY=sf_… python agents_day.py http://127.0.0.1:8600
"""

from __future__ import annotations

import asyncio
import os
import sys
from pprint import pformat
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

PAGE = "people/ann"
WIDTH = 116


def show_fields(value: Any, *names: str) -> None:
    """Print some fields of a result."""
    shown = {name: value[name] for name in names}
    sys.stdout.write(pformat(shown, width=WIDTH, sort_dicts=False) + "\n\n")


async def call(agent: Client, tool: str, shown: str, **arguments: Any) -> Any:
    """Call a tool; print the call and the result."""
    sys.stdout.write(f"> {tool} {pformat(arguments, width=WIDTH, sort_dicts=False)}\n")
    answer = (await agent.call_tool(tool, arguments)).structured_content
    show_fields(answer, *shown.split())
    return answer


async def morning(agent: Client) -> None:
    """Write, link, tag, search."""
    ann = {"slug": PAGE, "title": "Ann Lee", "type": "person"}
    await call(agent, "write", "slug version", slug="companies/acme", body="# Acme\n\nMakes airships.")
    await call(agent, "write", "slug version created", **ann, body="Ann works at Acme. She lives in Oslo.")
    await call(
        agent, "link", "slug links", slug=PAGE, to="projects/anvil", type="works_on", context="since May"
    )
    await call(agent, "tag", "tags version", slug=PAGE, tags=["friend"])
    sys.stdout.write("> search {'query': 'Who works at Acme?', 'limit': 1}\n")
    found = await agent.call_tool("search", {"query": "Who works at Acme?", "limit": 1})
    show_fields(found.structured_content["results"][0], "slug", "title", "snippet")


async def correct(http: httpx2.AsyncClient, origin: str) -> None:
    """Send the form of the page's editor, as a browser does."""
    form = {"title": "Ann Lee", "type": "person", "tags": "friend", "version": "2"}
    typed = form | {"body": "Ann works at Acme. She lives in Bergen."}
    answer = await http.post(f"{origin}/memory/{PAGE}/~edit", data=typed)
    sys.stdout.write(
        f"(a person saves in the browser: {answer.status_code}, to {answer.headers['location']})\n\n"
    )


async def main(origin: str) -> None:
    """Run the day from morning to evening."""
    bearer = {"Authorization": f"Bearer {os.environ['SIXFOLD_API_KEY']}"}  # noqa: TID251  # a program of its own
    async with (
        httpx2.AsyncClient(headers=bearer) as http,
        Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as agent,
    ):
        await morning(agent)
        page = await call(agent, "read", "version body", slug=PAGE)
        await correct(http, origin)
        more = {"slug": PAGE, "operation": "append", "content": "She plays chess."}
        await call(agent, "edit", "error code status", **more, if_version=page["version"])
        page = await call(agent, "read", "version body", slug=PAGE)
        await call(agent, "edit", "slug version changed", **more, if_version=page["version"])
        await call(agent, "history", "diff fields", **{"slug": PAGE, "from": 2, "to": 4})


asyncio.run(main(sys.argv[1]))
