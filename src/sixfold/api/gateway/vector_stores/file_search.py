"""The tool `file_search` of responses, which this server runs on its vector stores.

The last message of the user is searched once, before the model answers. The model cites a passage by its
number in brackets, which becomes an annotation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses.file_search import FileSearchOutput
from sixfold.api.gateway.vector_stores import schemas
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.vector_stores.search import ChunkHit, VectorStoreSearch
from sixfold.core.vector_stores.stores import VectorStoreNotFound
from sixfold.web import bodies

TOOL = "file_search"
MAX_STORES = 10
_MAX_CHARS = 32_000
_RESULTS = "file_search_call.results"
_MARK = re.compile(rb'"file_search"')


class FileSearchTool:
    """Runs the tool for models whose server does not support it."""

    def __init__(self, search: VectorStoreSearch, router: ModelRouter) -> None:
        self._search = search
        self._router = router

    async def run(self, principal: Principal, raw: bytes) -> tuple[FileSearchOutput, bytes] | None:
        """Return the search and the request with its passages, or None if this server does not search.

        OpenAI's servers search their own stores. Raises `InvalidRequest`, `VectorStoreNotFound` and
        `BadRequest`.
        """
        if _MARK.search(raw) is None:
            return None
        body = await bodies.parse(bodies.parse_object, raw)
        rows = [parsing.mapping(row, "tools") for row in parsing.items(body.get("tools") or [], "tools")]
        tools = [row for row in rows if row.get("type") == TOOL]
        if not tools:
            return None
        if len(tools) > 1:
            raise InvalidRequest("tools may contain at most one file_search tool", param="tools")
        text = _last_message(body.get("input"))[: schemas.QUERY_CHARS]
        try:
            hits = await self._hits(principal, tools[0], text)
        except VectorStoreNotFound:
            if self._router.reads_documents(str(body.get("model", "")), "responses"):
                return None
            raise
        include = body.get("include")
        includes_results = _RESULTS in cast("list[Any]", include) if isinstance(include, list) else False
        output = FileSearchOutput(text, hits, includes_results)
        return output, await bodies.parse(lambda _: _with_passages(body, output), raw)

    async def _hits(self, principal: Principal, tool: Mapping[str, Any], text: str) -> Sequence[ChunkHit]:
        """Return the best passages of all stores of the tool, within a limit of characters."""
        stores = parsing.items(tool.get("vector_store_ids"), "tools.vector_store_ids")
        if not 0 < len(stores) <= MAX_STORES or not all(isinstance(store, str) for store in stores):
            message = f"vector_store_ids must have 1 to {MAX_STORES} ids"
            raise InvalidRequest(message, param="tools.vector_store_ids")
        names = ("max_num_results", "filters", "ranking_options")
        fields = {name: tool[name] for name in names if tool.get(name) is not None}
        _, query = schemas.query({**fields, "query": text or " "})
        hits: list[ChunkHit] = []
        for store in dict.fromkeys(stores):
            hits += await self._search.search(principal.tenant, store, query)
        best = sorted(hits, key=lambda hit: -hit.score)[: query.limit]
        within_limit: list[ChunkHit] = []
        chars = 0
        for hit in best:
            chars += len(hit.text)
            if chars > _MAX_CHARS:
                break
            within_limit.append(hit)
        return tuple(within_limit)


def _with_passages(body: dict[str, Any], output: FileSearchOutput) -> bytes:
    """Return a request with the passages in its instructions, and without the tool."""
    changed = dict(body)
    changed["tools"] = [row for row in body["tools"] if row.get("type") != TOOL]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and cast("dict[str, Any]", choice).get("type") == TOOL:
        del changed["tool_choice"]
    instructions = body.get("instructions")
    parts = [instructions] if isinstance(instructions, str) and instructions else []
    changed["instructions"] = "\n\n".join([*parts, output.passages()])
    return parsing.encode(changed)


def _last_message(items: Any) -> str:
    """Return the text of the user's last message."""
    if isinstance(items, str):
        return items
    for value in reversed(cast("list[Any]", items if isinstance(items, list) else [])):
        item = cast("dict[str, Any]", value if isinstance(value, dict) else {})
        if item.get("role") != "user":
            continue
        content = item.get("content")
        if isinstance(content, str):
            return content
        parts = cast("list[Any]", content if isinstance(content, list) else [])
        texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
        return " ".join(text for text in texts if isinstance(text, str))
    return ""
