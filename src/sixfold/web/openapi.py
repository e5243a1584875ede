"""OpenAPI 3.1 documents, generated from the route table, model inputs and response types.

A type may stand for any schema: `OpenApiDocument.plain` replaces it. The class `PageSchema` becomes the
component `Page`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, cast

import msgspec

from sixfold.core.accounts import rights
from sixfold.core.catalog import timeline
from sixfold.core.catalog.inputs import MEDIA_TYPES, Descriptor
from sixfold.web.responses import ErrorSchema
from sixfold.web.routing import Entry

Node = dict[str, Any]
Shape = Any  # a schema, or a type that has one
BEARER = "bearer"
JSON = "application/json"
Text = Annotated[str, msgspec.Meta(pattern=r"\S", extra_json_schema={"minLength": 1})]
FILE: Node = {"type": "string", "format": "binary"}
CONTENT: Node = {**FILE, "minLength": 1}
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
    "X-Sixfold-Ignored": {
        "schema": {"type": "string"},
        "description": "The words of the prompt that the engine ignored, percent-encoded",
    },
    "X-Sixfold-Ignored-Inputs": {
        "schema": {"type": "string"},
        "description": "Inputs that the model does not have, which were ignored, percent-encoded",
    },
}
TEXTS = {
    400: "A parameter is missing or invalid",
    401: "The key is missing or invalid",
    402: "The balance is too low",
    403: "The key lacks the right that this requires",
    404: "The object was not found in this account",
    405: "Method not allowed",
    409: "The request conflicts with an earlier one",
    412: "The object is not at the named version",
    413: "The body is too large",
    416: "The range lies outside of the file",
    422: "Validation Error",
    429: "Too many requests; retry after the seconds in Retry-After",
    500: "Internal error",
    502: "The generation failed; nothing was charged",
    503: "No engine can serve this, or the server is shutting down; nothing was charged",
}


_SUFFIX = "Schema"
_NAMES = frozenset({"$ref", "title"})


class OperationSpec(msgspec.Struct, frozen=True):
    """The description of one method of a route; its path parameters and security come from the route.

    `responses` are its own responses, and `statuses` its errors in addition to those of every route, in the
    schema of `error` or else of the document. `body` is the schema of a JSON body; `bodies` has schemas by
    media type instead. With `keyless`, the credential may also be in the body, or is not needed on the same
    machine.
    """

    summary: str
    responses: Mapping[int, Node]
    statuses: tuple[int, ...] = ()
    body: Shape = None
    parameters: tuple[Node, ...] = ()
    operation_id: str = ""
    error: Shape = None
    keyless: bool = False
    bodies: Mapping[str, Shape] = {}


class OpenApiDocument(msgspec.Struct, frozen=True):
    """The description of one API; `operations` are named by method and path, as `GET /api/pages/{slug}`."""

    title: str
    version: str
    description: str
    operations: Mapping[str, OperationSpec]
    error: Shape = ErrorSchema

    def summaries(self) -> Iterator[tuple[str, str, str]]:
        """Yield the method, path and summary of every operation."""
        for name, spec in self.operations.items():
            method, _, path = name.partition(" ")
            yield method, path, spec.summary

    def plain(self, server_url: str, routes: Iterable[Entry]) -> Node:
        """Return the document as JSON; raises `KeyError` for an operation without a route."""
        entries = {f"{entry.method} {documented(entry.path)}": entry for entry in routes}
        paths: dict[str, Node] = {}
        for name, spec in self.operations.items():
            method, _, path = name.partition(" ")
            paths.setdefault(path, {})[method.lower()] = self._operation(spec, entries[name])
        rendered, components = generate(paths)
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": self.version, "description": self.description},
            "servers": [{"url": server_url}],
            "paths": rendered,
            "components": {
                "schemas": components,
                "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
            },
        }

    def _operation(self, spec: OperationSpec, entry: Entry) -> Node:
        access, error = entry.access, spec.error or self.error
        public = access is None or access.public
        statuses = {*spec.statuses, 405, 413, 500, *(() if public else (401, 403))}
        if IDEMPOTENCY in spec.parameters:
            # The key was used with another body, or its first request is in progress.
            statuses.add(409)
        own = {str(status): response for status, response in spec.responses.items()}
        failed = {str(status): response(TEXTS[status], error) for status in sorted(statuses)}
        path = documented(entry.path)
        name = re.sub(r"\W+", "_", f"{entry.method.lower()}{path}").strip("_")
        schema: Node = {
            "summary": spec.summary,
            "operationId": spec.operation_id or name,
            "security": [] if access is None or public else [{BEARER: list(rights.names(access.right))}],
            "parameters": [*map(in_path, re.findall(r"{(\w+)}", path)), *spec.parameters],
            "responses": {**failed, **own},
        }
        if spec.keyless:
            schema["security"].append({})
        bodies = spec.bodies if spec.body is None else {JSON: spec.body}
        if bodies:
            content = {kind: {"schema": schema} for kind, schema in bodies.items()}
            schema["requestBody"] = {"required": True, "content": content}
        return schema


def documented(path: str) -> str:
    """Return the path of a route as OpenAPI documents write it."""
    return path.replace(":path}", "}")


def shape(name: str, **fields: Shape) -> type[msgspec.Struct]:
    """Return a type for an object with all of `fields`, which becomes the component `name`."""
    return msgspec.defstruct(name + _SUFFIX, fields.items())


def page(name: str, **rows: Shape) -> type[msgspec.Struct]:
    """Return a type for a page of a list, with the cursor of the next page."""
    return shape(name, **{noun: list[row] for noun, row in rows.items()}, next_cursor=str | None)


def generate(tree: Node) -> tuple[Node, dict[str, Node]]:
    """Return the tree with its types replaced with schema references, and the referenced schemas by name."""
    types: list[Any] = []
    _collect(tree, types)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named = {name.removesuffix(_SUFFIX): _named(schema, iter(())) for name, schema in components.items()}
    return _named(tree, iter(schemas)), named


def _collect(node: Any, types: list[Any]) -> None:
    if isinstance(node, dict):
        for value in cast("Node", node).values():
            _collect(value, types)
    elif isinstance(node, list | tuple):
        for value in cast("list[Any]", node):
            _collect(value, types)
    elif node is not None and not isinstance(node, str | int | float):
        types.append(node)


def _named(node: Any, schemas: Iterator[Node]) -> Any:
    """Replace each type by the next of `schemas`, in the order of `_collect`, and shorten component names."""
    if isinstance(node, dict):
        return {
            name: value.removesuffix(_SUFFIX)
            if name in _NAMES and isinstance(value, str)
            else _named(value, schemas)
            for name, value in cast("Node", node).items()
        }
    if isinstance(node, list | tuple):
        return [_named(value, schemas) for value in cast("list[Any]", node)]
    return node if node is None or isinstance(node, str | int | float) else _named(next(schemas), schemas)


class OpenApiDocuments(Mapping[str, OpenApiDocument]):
    """OpenAPI documents by name, each built on first access."""

    def __init__(
        self, builders: Mapping[str, Callable[[], OpenApiDocument]], routes: Callable[[], Iterable[Entry]]
    ) -> None:
        self._routes = routes
        self._builders = dict(sorted(builders.items()))
        self._built: dict[str, OpenApiDocument] = {}

    def __getitem__(self, name: str) -> OpenApiDocument:
        if name not in self._built:
            self._built[name] = self._builders[name]()
        return self._built[name]

    def plain(self, name: str, server_url: str) -> Node:
        return self[name].plain(server_url, self._routes())

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)


def schema_of(descriptor: Descriptor) -> Node:
    schema: Node = {"type": _TYPES.get(descriptor.type, "string"), "description": descriptor.description}
    limits = {"minimum": descriptor.min, "maximum": descriptor.max, "maxLength": descriptor.max_chars}
    schema |= {name: limit for name, limit in limits.items() if limit is not None}
    if descriptor.type == "sizes":
        return _sizes(descriptor)
    if descriptor.type == "project":
        return _project(descriptor)
    if descriptor.type in LIST_ITEMS:
        return _list(descriptor)
    if descriptor.type in MEDIA_TYPES:
        schema["description"] += " (a URL, a data: URI, or the id of an upload)"
    if descriptor.choices:
        schema["enum"] = list(descriptor.choices)
    if descriptor.default is not None:
        schema["default"] = descriptor.default
    if descriptor.required and descriptor.type == "string":
        schema["minLength"] = 1
        schema["pattern"] = r"\S"
    if descriptor.pattern:
        schema["pattern"] = f"^({descriptor.pattern})$"
    return schema


def _list(descriptor: Descriptor) -> Node:
    item = dict(LIST_ITEMS[descriptor.type])
    if descriptor.type == "texts" and descriptor.max_chars:
        item["maxLength"] = descriptor.max_chars
    if descriptor.type == "images":
        item |= {"minLength": 1, "pattern": r"\S"}
    schema: Node = {"type": "array", "items": item, "minItems": 1}
    if descriptor.max_items:
        schema["maxItems"] = descriptor.max_items
    either: Node = {"description": descriptor.description, "anyOf": [schema, {"type": "string"}]}
    return either | ({"default": descriptor.default} if descriptor.default is not None else {})


def _sizes(descriptor: Descriptor) -> Node:
    side: Node = {"type": "integer", "minimum": descriptor.min, "maximum": descriptor.max}
    size: Node = {
        "type": "object",
        "required": ["width", "height"],
        "properties": {"width": side, "height": side},
    }
    text: Node = {"type": "string", "pattern": "^[0-9]{2,4}x[0-9]{2,4}$", "examples": ["1200x630"]}
    schema: Node = {"type": "array", "description": descriptor.description, "minItems": 1}
    schema["items"] = {"anyOf": [text, size]}
    return schema | ({"maxItems": descriptor.max_items} if descriptor.max_items else {})


def _project(descriptor: Descriptor) -> Node:
    style, change = (object_of(rows) for rows in (timeline.STYLE, timeline.TRANSITION))
    own: Node = {"url": schema_of(timeline.URL), "text": schema_of(timeline.TEXT)}
    clip = object_of(timeline.CLIP, {**own, "style": style, "transition": change})
    track: Node = {
        "type": "object",
        "required": ["type", "clips"],
        "properties": {
            "type": {"enum": list(timeline.KINDS)},
            "clips": {"type": "array", "maxItems": timeline.MAX_CLIPS, "items": clip},
        },
    }
    tracks: Node = {"type": "array", "minItems": 1, "maxItems": timeline.MAX_TRACKS, "items": track}
    schema = object_of(timeline.PROJECT, {"tracks": tracks})
    return {**schema, "required": ["tracks"], "description": descriptor.description}


def object_of(descriptors: Iterable[Descriptor], extra: Mapping[str, Node] | None = None) -> Node:
    """Return the JSON Schema of an object with the given inputs, preceded by optional `extra` properties."""
    inputs = tuple(descriptors)
    return {
        "type": "object",
        "required": [descriptor.name for descriptor in inputs if descriptor.required],
        "properties": {**(extra or {}), **{d.name: schema_of(d) for d in inputs}},
    }


def query(name: str, schema: Shape, *, required: bool = False) -> Node:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def limit(maximum: int, default: int | None = None, minimum: int = 1) -> Node:
    """Return the query parameter `limit` of a list."""
    schema: Node = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return query("limit", schema if default is None else {**schema, "default": default})


def text(name: str, max_chars: int) -> Node:
    """Return a query parameter of type string."""
    return query(name, {"type": "string", "maxLength": max_chars})


def in_path(name: str) -> Node:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


IDEMPOTENCY: Node = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request with the same key, body and query string returns the first response again",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def response(description: str, schema: Shape, *kinds: str, headers: Node | None = None) -> Node:
    """Return the description of a response, in JSON or in the media types `kinds`."""
    return {
        "description": description,
        "headers": {**_HEADERS, **(headers or {})},
        "content": {kind: {"schema": schema} for kind in kinds or (JSON,)},
    }


def result(description: str, schema: Shape, *kinds: str) -> Node:
    """Return the description of a response with a generated result, whose headers name the engine."""
    return response(description, schema, *kinds, headers=ENGINE_HEADERS)
