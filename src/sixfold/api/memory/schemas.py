"""Requests of the Memory API: the caller, arguments from queries and bodies, and versions from headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request

from sixfold import errors
from sixfold.core.memory import limits, operations
from sixfold.core.memory.commands import WriteTerms
from sixfold.core.memory.import_export import document_fields
from sixfold.core.memory.models import Caller
from sixfold.core.memory.operation_schema import Operation, OperationField
from sixfold.core.memory.search import context
from sixfold.core.memory.serializers import PageSchema
from sixfold.web import bodies
from sixfold.web.services import WebServices

_TAG = re.compile(r'(?:W/)?"?(?P<version>\d{1,15})"?', re.ASCII)
_ANY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"|\d{1,15}')
_SWITCHES: Mapping[str, Any] = {"true": True, "1": True, "false": False, "0": False}
MAX_PARAMETERS = 100


async def nothing(_caller: Any, _arguments: Any) -> dict[str, Any]:
    """Do nothing, as the handler of operations that only declare request fields."""
    return {}


def fields(*declared: OperationField) -> Operation:
    """Return an operation that only declares fields."""
    return Operation("", "", declared, writes=False, handler=nothing)


LIMIT, CURSOR, AS_OF = operations.LIMIT, operations.CURSOR, operations.AS_OF
PAGE = fields(
    replace(operations.SLUG, required=False),
    *(
        replace(field, required=False)
        for field in operations.WRITE
        if field.name not in {"slug", "if_version"}
    ),
)
NEW_PAGE = fields(
    operations.SLUG, *(replace(f, required=False) for f in operations.WRITE if f.name != "slug")
)
CONTEXT = fields(*context.FIELDS)
SEARCH = fields(*operations.SEARCH)
LIST = fields(*operations.LIST)
PATCH = fields(
    *(field for field in operations.EDIT if field.name not in {"slug", "to"}),
    OperationField("slug", "string", "rename: the new slug", max_chars=limits.LONG_SLUG),
)
VERSIONS = fields(*(field for field in operations.HISTORY if field.name != "slug"))
RESTORE = fields(
    *(
        replace(field, required=field.name == "version")
        for field in operations.RESTORE
        if field.name != "slug"
    )
)
DOCUMENT = fields(*(replace(field, required=False) for field in document_fields.DOCUMENT))
EXPORT = fields(
    OperationField(
        "format", "string", "The folders of the files", default="markdown", choices=("markdown", "logseq")
    )
)
PARTS = fields(AS_OF, LIMIT, CURSOR)
_MANY_LINKS = replace(LIMIT, default=None, description="Maximum number of links; all by default")
LINKS = fields(AS_OF, _MANY_LINKS, CURSOR)
COUNTS = fields(LIMIT, CURSOR)
LINK = fields(
    OperationField("to", "string", "The slug that it leads to", required=True, max_chars=limits.LONG_SLUG),
    *(field for field in operations.LINK if field.name in {"type", "context", "if_version"}),
    OperationField(
        "action",
        "string",
        "add, or judge an inferred one",
        default="add",
        choices=("add", "confirm", "dismiss"),
    ),
)
UNLINK = fields(*(field for field in LINK.fields if field.name in {"to", "type", "if_version"}))
TRAVERSE = fields(*(field for field in operations.TRAVERSE if field.name != "slug"))
ENTRY = fields(
    *(
        replace(field, required=field.name in {"date", "summary"})
        for field in operations.TIMELINE
        if field.name in {"date", "summary", "detail", "source", "if_version"}
    )
)
TAGS = fields(
    OperationField("tags", "strings", "Tags", required=True),
    *(field for field in operations.TAG if field.name == "if_version"),
)


async def caller_of(services: WebServices, request: Request) -> Caller:
    """Authenticate a request by its bearer header, for the shared folder that it names, if any."""
    return Caller.of(await services.authenticator.memory(request))


def from_query(operation: Operation, request: Request) -> dict[str, Any]:
    """Return the arguments of a query string; a list is a repeated or comma-separated parameter."""
    arguments: dict[str, Any] = {}
    if len(request.query_params) > MAX_PARAMETERS:
        raise errors.BadRequest(f"The query must have at most {MAX_PARAMETERS} parameters")
    for field in operation.fields:
        values = request.query_params.getlist(field.name)
        if values:
            arguments[field.name] = _typed(field, values)
    return operation.read(arguments)


def _typed(field: OperationField, values: list[str]) -> Any:
    if field.kind == "strings":
        return [part for value in values for part in value.split(",") if part.strip()]
    text = values[-1]
    if field.kind == "integer":
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else text
    if field.kind == "boolean":
        return _SWITCHES.get(text.lower(), text)
    return text


async def from_body(operation: Operation, request: Request) -> dict[str, Any]:
    return operation.read(await bodies.parse(bodies.parse_object, await request.body()))


async def page_from_body(operation: Operation, request: Request) -> dict[str, Any]:
    """Return the arguments of a JSON body that writes a whole page.

    Raises `InvalidInput` if it has an unknown name instead of `body`, which would create an empty page. Other
    unknown names are ignored, as in all requests.
    """
    body = await bodies.parse(bodies.parse_object, await request.body())
    names = [field.name for field in operation.fields]
    unknown = [name for name in body if name not in names and name not in PageSchema.__annotations__]
    if unknown and "body" not in body:
        raise errors.InvalidInput.of(
            unknown[0], f"Unknown field {unknown[0][:100]!r}: use {', '.join(names)}", "unknown"
        )
    return operation.read(body)


async def from_either(operation: Operation, request: Request) -> dict[str, Any]:
    """Return the arguments of a DELETE, from its body or else from its query string."""
    raw = await request.body()
    if not raw.strip():
        return from_query(operation, request)
    return operation.read(await bodies.parse(bodies.parse_object, raw))


def terms(request: Request, arguments: Mapping[str, Any] | None = None) -> WriteTerms:
    """Return the conditions of a change: `If-Match`, `If-None-Match: *`, or `if_version` of the body."""
    values = arguments or {}
    version = values.get("if_version")
    only_new = (request.headers.get("if-none-match") or "").strip() == "*"
    header = request.headers.get("if-match")
    overwrite = bool(values.get("overwrite"))
    if header is None:
        return WriteTerms(version, overwrite, only_new)
    if header.strip() == "*":
        return WriteTerms(version, overwrite, only_new, must_exist=True)
    tags = [tag.strip() for tag in header.split(",")]
    if not all(_ANY_TAG.fullmatch(tag) for tag in tags):
        raise errors.BadRequest('If-Match must be a version in quotes, as in "3", or *')
    versions = [int(match["version"]) for match in map(_TAG.fullmatch, tags) if match is not None]
    if len(versions) > 1:
        raise errors.BadRequest(f"If-Match must name one version (got {len(versions)})")
    # An ETag of another form matches no version.
    named = versions[0] if versions else 0
    if version is not None and version != named:
        raise errors.BadRequest("If-Match and if_version must name the same version")
    return WriteTerms(named, overwrite, only_new)


def moment(request: Request) -> int | None:
    """Return `as_of` in epoch µs."""
    text = request.query_params.get("as_of")
    return None if text is None else limits.latest("as_of", text)
