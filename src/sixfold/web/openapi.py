"""OpenAPI 3.1 documents, built from the same tables that the routes are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sixfold.core.work import timeline
from sixfold.core.work.inputs import MEDIA_TYPES, Descriptor

Node = dict[str, Any]
BEARER = "bearer"
_TYPES = {"integer": "integer", "number": "number", "boolean": "boolean"}
_NUMBER_OR_GAP: Node = {"type": ["number", "null"]}
_POINT: Node = {
    "type": "object",
    "required": ["t"],
    "properties": {"t": {"type": ["string", "number"]}, "y": _NUMBER_OR_GAP},
}
LIST_ITEMS: dict[str, Node] = {
    "texts": {"type": "string"},
    "images": {"type": "string"},
    "numbers": {"type": "number"},
    "series": {"anyOf": [_NUMBER_OR_GAP, _POINT]},
}
_HEADERS: Node = {"X-Request-Id": {"schema": {"type": "string"}, "description": "The id of this request"}}
ENGINE_HEADERS: Node = {
    "X-Sixfold-Engine": {"schema": {"type": "string"}, "description": "The engine that served"},
    "X-Sixfold-Quality": {"schema": {"type": "string", "enum": ["full", "preview"]}},
}
CODED: Node = {
    "type": "object",
    "required": ["error", "code", "status", "request_id"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "status": {"type": "integer"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["input", "message"],
                "properties": {"input": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
TEXTS = {
    400: "A parameter is missing or invalid",
    401: "The key is missing or invalid",
    402: "The balance is too low",
    403: "This key may not do that",
    404: "There is no such object of this account",
    405: "Method not allowed",
    409: "The request conflicts with one that was made before",
    412: "The object is at another version than the one that was named",
    413: "The body is too large",
    416: "The range lies outside of the file",
    422: "Validation Error",
    429: "Too many requests wait; Retry-After says when to ask again",
    500: "Internal error",
    502: "The generation failed; nothing was charged",
    503: "No engine can serve this, or the server is shutting down; nothing was charged",
}


@dataclass(frozen=True, slots=True)
class Document:
    """One area's description: its title and version, its operations by path and method, its schemas."""

    title: str
    version: str
    description: str
    paths: Mapping[str, Mapping[str, Node]]
    schemas: Mapping[str, Node] = field(default_factory=dict[str, Node])

    def plain(self, server_url: str) -> Node:
        """The document as JSON."""
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": self.version, "description": self.description},
            "servers": [{"url": server_url}],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
            },
        }


CHARGE: Node = {
    "type": ["object", "null"],
    "description": "How an amount came about; null for what moved no charge, and for rows of older versions",
    "required": ["amount_usd", "sum", "lines"],
    "properties": {
        "amount_usd": {"type": "string"},
        "sum": {"type": "string", "examples": ["1,200 × 0.10/M + 300 × 0.40/M = 0.00024 USD"]},
        "limit_usd": {"type": "string", "description": "What was held, where the sum is above it"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["unit", "quantity", "rate_usd", "per"],
                "properties": {
                    "unit": {"type": "string"},
                    "quantity": {"type": "number"},
                    "rate_usd": {"type": "string", "description": "USD for `per` units"},
                    "per": {"type": "integer"},
                    "list_rate_usd": {"type": "string", "description": "The listed rate, where it differs"},
                },
            },
        },
    },
}


class Documents(Mapping[str, Document]):
    """OpenAPI documents by name, each built when it is first read."""

    def __init__(self, builders: Mapping[str, Callable[[], Document]]) -> None:
        self._builders = dict(sorted(builders.items()))
        self._built: dict[str, Document] = {}

    def __getitem__(self, name: str) -> Document:
        if name not in self._built:
            self._built[name] = self._builders[name]()
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)


def always(properties: Node) -> list[str]:
    """Name the fields that an answer always has: a list price is there only where less is charged."""
    return [name for name in properties if not name.startswith("list_price")]


def ref(name: str) -> Node:
    """A schema of the same document."""
    return {"$ref": f"#/components/schemas/{name}"}


def schema_of(descriptor: Descriptor) -> Node:
    """An input as JSON Schema."""
    found: Node = {"type": _TYPES.get(descriptor.type, "string"), "description": descriptor.description}
    limits = {"minimum": descriptor.min, "maximum": descriptor.max, "maxLength": descriptor.max_chars}
    found |= {name: limit for name, limit in limits.items() if limit is not None}
    if descriptor.type == "sizes":
        return _sizes(descriptor)
    if descriptor.type == "project":
        return _project(descriptor)
    if descriptor.type in LIST_ITEMS:
        return _list(descriptor)
    if descriptor.type in MEDIA_TYPES:
        found["description"] += " (a URL, a data: URI, or the id of an upload)"
    if descriptor.choices:
        found["enum"] = list(descriptor.choices)
    if descriptor.default is not None:
        found["default"] = descriptor.default
    if descriptor.required and descriptor.type == "string":
        found["minLength"] = 1
        found["pattern"] = r"\S"
    return found


def _list(descriptor: Descriptor) -> Node:
    """A list, or the same as text."""
    item = dict(LIST_ITEMS[descriptor.type])
    if descriptor.type == "texts" and descriptor.max_chars:
        item["maxLength"] = descriptor.max_chars
    found: Node = {"type": "array", "items": item, "minItems": 1}
    if descriptor.max_items:
        found["maxItems"] = descriptor.max_items
    whole: Node = {"description": descriptor.description, "anyOf": [found, {"type": "string"}]}
    return whole | ({"default": descriptor.default} if descriptor.default is not None else {})


def _sizes(descriptor: Descriptor) -> Node:
    """One to many sizes, each as text or as an object."""
    side: Node = {"type": "integer", "minimum": descriptor.min, "maximum": descriptor.max}
    size: Node = {
        "type": "object",
        "required": ["width", "height"],
        "properties": {"width": side, "height": side},
    }
    text: Node = {"type": "string", "pattern": "^[0-9]{2,4}x[0-9]{2,4}$", "examples": ["1200x630"]}
    found: Node = {"type": "array", "description": descriptor.description, "minItems": 1}
    found["items"] = {"anyOf": [text, size]}
    return found | ({"maxItems": descriptor.max_items} if descriptor.max_items else {})


def _project(descriptor: Descriptor) -> Node:
    """A timeline: its own facts, and tracks of clips."""
    style, change = (object_of(rows) for rows in (timeline.STYLE, timeline.TRANSITION))
    own: Node = {"url": schema_of(timeline.URL), "text": schema_of(timeline.TEXT)}
    clip = object_of(timeline.CLIP, {**own, "style": style, "transition": change})
    track: Node = {
        "type": "object",
        "required": ["type", "clips"],
        "properties": {
            "type": {"enum": list(timeline.KINDS)},
            "clips": {"type": "array", "maxItems": timeline.MOST_CLIPS, "items": clip},
        },
    }
    tracks: Node = {"type": "array", "minItems": 1, "maxItems": timeline.MOST_TRACKS, "items": track}
    found = object_of(timeline.PROJECT, {"tracks": tracks})
    return {**found, "required": ["tracks"], "description": descriptor.description}


def object_of(descriptors: Iterable[Descriptor], extra: Mapping[str, Node] | None = None) -> Node:
    """Inputs as the schema of a JSON object; `extra` properties come first and are optional."""
    wanted = tuple(descriptors)
    return {
        "type": "object",
        "required": [descriptor.name for descriptor in wanted if descriptor.required],
        "properties": {**(extra or {}), **{d.name: schema_of(d) for d in wanted}},
    }


def query(name: str, schema: Node, *, required: bool = False) -> Node:
    """A parameter of the query string."""
    return {"name": name, "in": "query", "required": required, "schema": schema}


def in_path(name: str) -> Node:
    """A parameter of the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


IDEMPOTENCY: Node = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and body again give the first answer again",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def answer(
    description: str, schema: Node, *, headers: Node | None = None, kind: str = "application/json"
) -> Node:
    """One response."""
    return {
        "description": description,
        "headers": {**_HEADERS, **(headers or {})},
        "content": {kind: {"schema": schema}},
    }


def failures(schema: Node, *statuses: int) -> dict[str, Node]:
    """The error responses of an operation, all of one schema."""
    return {str(status): answer(TEXTS[status], schema) for status in sorted({*statuses, 405, 413, 500})}


def json_body(schema: Node) -> Node:
    """A required JSON body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}
