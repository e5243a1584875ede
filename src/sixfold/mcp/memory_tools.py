"""The memory's operations as tools, its pages as resources, and two prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote, unquote

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts import rights
from sixfold.core.memory.facts import requests as fact_requests
from sixfold.core.memory.facts.service import FactService
from sixfold.core.memory.models import Caller
from sixfold.core.memory.operation_schema import Arguments, Operation, OperationField
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import JsonObject, RpcError
from sixfold.mcp.server import ServerFeature, ToolInvocation
from sixfold.mcp.tools import McpTool, Run, ToolOutcome

SCHEME = "memory://"
_MARKDOWN = "text/markdown"
_PAGE = 100
# Maximum number of characters of one `read`.
_MAX_CHARS = 200_000
_TITLES = {
    "context": "Context of a question",
    "search": "Search the memory",
    "read": "Read a page",
    "write": "Write a page",
    "edit": "Edit a page",
    "list": "List pages",
    "tag": "Tags of a page",
    "link": "Links of a page",
    "timeline": "Timeline of a page",
    "traverse": "Follow links",
    "history": "Versions of a page",
    "delete": "Delete a page",
    "restore": "Restore a version",
    "inspect": "Summary of the memory",
    "import_document": "Import a document",
    "fetch": "Fetch a result",
}
_DESTROYS = frozenset({"write", "edit", "delete", "restore", "import_document"})
# Operations that require only the right to write; other writing operations also read.
_ONLY_WRITES = _DESTROYS
_REPEATABLE = frozenset({"tag", "link", "delete", "import_document"})
# Operations that may access the network.
_FETCHES = frozenset({"import_document"})


def tools(operations: Sequence[Operation]) -> list[McpTool]:
    return [_tool(operation) for operation in operations]


def _tool(operation: Operation) -> McpTool:
    async def run(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        values = await operation(Caller.of(call.principal), arguments)
        return _OUTCOMES.get(operation.name, ToolOutcome)(values)

    name = operation.name
    return McpTool(
        name=name,
        title=_TITLES.get(name, name.capitalize()),
        description=operation.description,
        schema=operation.schema(),
        run=run,
        lost="Use search, or list with a prefix, to find the slug.",
        hints={
            "readOnlyHint": not operation.writes,
            "destructiveHint": name in _DESTROYS,
            "idempotentHint": not operation.writes or name in _REPEATABLE,
            "openWorldHint": name in _FETCHES,
        },
        access=rights.MEMORY_WRITE if name in _ONLY_WRITES else rights.MEMORY_READ,
    )


def fact_tools(facts: FactService, base_url: str) -> list[McpTool]:
    """Return the tools that call a model, or an empty list if the operator has not configured one."""

    async def remember(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        return ToolOutcome(await fact_requests.remember(facts, call.principal, arguments))

    async def undo(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        return ToolOutcome(await fact_requests.undo(facts, Caller.of(call.principal), arguments))

    async def answer(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        return ToolOutcome(await fact_requests.answer(facts, call.principal, arguments, base_url))

    rows = (
        ("remember", "Remember facts", fact_requests.REMEMBER_TEXT, fact_requests.REMEMBER, remember),
        ("undo_remember", "Undo a batch of facts", fact_requests.UNDO_TEXT, fact_requests.UNDO, undo),
        ("answer", "Answer from the memory", fact_requests.ANSWER_TEXT, fact_requests.ANSWER, answer),
    )
    return [_fact_tool(*row) for row in rows] if facts.enabled else []


def _fact_tool(
    name: str, title: str, description: str, fields: tuple[OperationField, ...], run: Run
) -> McpTool:
    async def handle(_caller: Caller, arguments: Arguments) -> Arguments:
        return arguments

    operation = Operation(name, description, fields, name != "answer", handle)

    async def checked(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        return await run(call, operation.read(arguments))

    return McpTool(
        name=name,
        title=title,
        description=description,
        schema=operation.schema(),
        run=checked,
        hints={
            "readOnlyHint": name == "answer",
            "destructiveHint": name == "undo_remember",
            "idempotentHint": False,
            "openWorldHint": name != "undo_remember",
        },
        access=_FACT_ACCESS[name],
    )


_FACT_ACCESS = {
    "remember": rights.RUN_MEMORY_EDIT,
    "undo_remember": rights.MEMORY_WRITE,
    "answer": rights.RUN_MEMORY_READ,
}


def _page_outcome(values: JsonObject) -> ToolOutcome:
    """Return a page with its text as plain content instead of a JSON string, which is shorter."""
    body = {"type": "text", "text": values["body"]}
    return ToolOutcome(values, (body,), {name: value for name, value in values.items() if name != "body"})


def _context_outcome(values: JsonObject) -> ToolOutcome:
    """Return a context as plain text. It names its pages, whose list would take half as many tokens again."""
    text = {"type": "text", "text": values["text"]}
    return ToolOutcome(values, (text,), {"left_out": values["left_out"]})


_OUTCOMES: Mapping[str, Callable[[JsonObject], ToolOutcome]] = {
    "read": _page_outcome,
    "context": _context_outcome,
}


class MemoryPages:
    """Pages as resources: `memory://people/ann`."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = {operation.name: operation for operation in operations}

    def feature(self) -> ServerFeature:
        """Return the resource methods and the completion of slugs."""
        return ServerFeature(
            {"resources": {"subscribe": False, "listChanged": False}, "completions": {}},
            {
                "resources/list": self._list,
                "resources/templates/list": self._templates,
                "resources/read": self._read,
                "completion/complete": self._complete,
            },
            access=rights.MEMORY_READ,
        )

    async def _list(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        cursor = params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, pagination.INVALID_CURSOR)
        arguments = {"limit": _PAGE, "cursor": cursor}
        page = await self._operations["list"](Caller.of(call.principal), arguments)
        result: JsonObject = {"resources": [_resource(row) for row in page["pages"]]}
        return result | ({"nextCursor": page["next_cursor"]} if page["next_cursor"] else {})

    async def _templates(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        del params, call
        template = {
            "uriTemplate": SCHEME + "{slug}",
            "name": "page",
            "title": "A page of the memory",
            "mimeType": _MARKDOWN,
        }
        return {"resourceTemplates": [template]}

    async def _read(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        uri = params.get("uri")
        if not isinstance(uri, str) or not uri.startswith(SCHEME):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"uri must begin with {SCHEME}")
        slug = unquote(uri.removeprefix(SCHEME))
        try:
            text = await self._page_text(Caller.of(call.principal), slug)
        except errors.NotFound as error:
            raise RpcError(jsonrpc.RESOURCE_NOT_FOUND, error.message, {"uri": uri[:400]}) from error
        return {"contents": [{"uri": uri, "mimeType": _MARKDOWN, "text": text}]}

    async def _page_text(self, caller: Caller, slug: str) -> str:
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            arguments = {"slug": slug, "offset": offset, "max_chars": _MAX_CHARS}
            page = await self._operations["read"](caller, arguments)
            parts.append(page["body"])
            offset = page.get("next_offset")
        return "".join(parts)

    async def _complete(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        prefix = jsonrpc.fields(params.get("argument")).get("value", "")
        if not isinstance(prefix, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, "argument.value must be a string")
        arguments = {"prefix": prefix[:200], "limit": _PAGE}
        try:
            page = await self._operations["list"](Caller.of(call.principal), arguments)
        except errors.BadRequest:
            # Slugs cannot begin with this value.
            return {"completion": {"values": [], "hasMore": False}}
        values = [row["slug"] for row in page["pages"]]
        return {"completion": {"values": values, "hasMore": bool(page["next_cursor"])}}


def _resource(row: JsonObject) -> JsonObject:
    return {
        "uri": SCHEME + quote(row["slug"]),
        "name": row["slug"],
        "title": row["title"],
        "mimeType": _MARKDOWN,
        "annotations": {"lastModified": row["updated_at"]},
    }


_PROMPTS: Mapping[str, tuple[str, str, str]] = {
    "recall": (
        "Recall what the memory knows",
        "The topic",
        "Search the memory for what is known about {topic}, read the pages that matter, and answer with "
        "their slugs.",
    ),
    "remember": (
        "Store something in the memory",
        "The text or topic to store",
        "Store this in the memory: {topic}. Search first; add to existing pages, with links and dates, and "
        "create a page only for a subject that does not have one.",
    ),
}


def prompts() -> ServerFeature:
    async def list_prompts(params: JsonObject, call: ToolInvocation) -> JsonObject:
        del params, call
        return {
            "prompts": [
                {
                    "name": name,
                    "title": title,
                    "description": title,
                    "arguments": [{"name": "topic", "description": argument_description, "required": True}],
                }
                for name, (title, argument_description, _text) in _PROMPTS.items()
            ]
        }

    async def get_prompt(params: JsonObject, call: ToolInvocation) -> JsonObject:
        del call
        name, arguments = params.get("name"), params.get("arguments")
        topic = jsonrpc.fields(arguments).get("topic")
        if not isinstance(name, str) or name not in _PROMPTS or not isinstance(topic, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"name must be one of {', '.join(_PROMPTS)}, with a topic")
        title, _argument_description, text = _PROMPTS[name]
        content = {"type": "text", "text": text.format(topic=topic)}
        return {"description": title, "messages": [{"role": "user", "content": content}]}

    return ServerFeature(
        {"prompts": {"listChanged": False}},
        {"prompts/list": list_prompts, "prompts/get": get_prompt},
        access=rights.ANY,
    )
