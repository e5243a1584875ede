"""Values of an HTTP request: its id, its path and query parameters, and the preferred response type."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.catalog.custom_models import PAGE, CustomModel, CustomModels


def request_id(request: Request) -> str:
    """Return the id that the response carries in `X-Request-Id`."""
    return str(request.scope["sixfold.request_id"])


def path_value(request: Request, name: str) -> str:
    return str(request.scope["path_params"][name])


_MAX_OWN_PAGE, _MAX_CURSOR = 200, 300


def cookie(request: Request, name: str) -> str:
    """Return the value of a cookie, the last one if there are several, or "" if there is none.

    Quoted values, which this server does not set, are returned with their quotes: Starlette unquotes them
    with a function that takes seconds for 64 KB of backslashes before Python 3.11.10 and 3.12.5.
    """
    value = ""
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            key, equals, text = pair.partition("=")
            if equals and key.strip() == name:
                value = text.strip()
    return value


def query_text(request: Request, name: str, max_chars: int) -> str:
    """Return a query parameter, or "" if it is missing; raises `InvalidInput` if it is too long."""
    value = request.query_params.get(name, "")
    if len(value) > max_chars:
        sentence = f"{name} must be at most {max_chars} characters (got {len(value)})"
        raise errors.InvalidInput.of(name, sentence, "string_too_long")
    return value


def query_choice(request: Request, name: str, words: Collection[str], max_chars: int) -> str:
    """Return a query parameter that must be one of `words`, or ""; raises `InvalidInput` for other values."""
    value = query_text(request, name, max_chars)
    if value and value not in words:
        raise errors.InvalidInput.of(name, f"{name} must be one of {', '.join(words)} (got {value[:40]})")
    return value


def page_size(request: Request, default: int, largest: int, max_chars: int) -> int:
    """Return the parameter `limit`, the rows of a page; raises `InvalidInput` unless it is 1 to `largest`."""
    value = query_text(request, "limit", max_chars) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= largest):
        raise errors.InvalidInput.of("limit", f"limit must be from 1 to {largest} (got {value[:20]})")
    return int(value)


async def own_models(
    models: CustomModels, request: Request, account_id: str, kind: str = ""
) -> tuple[tuple[CustomModel, ...], str | None]:
    """Return a page of an account's custom models, and the cursor of the next page; raises `BadRequest`."""
    limit = page_size(request, PAGE, _MAX_OWN_PAGE, _MAX_CURSOR)
    return await models.page(account_id, kind, limit, cursor(request))


def cursor(request: Request) -> str:
    """Return the parameter `cursor` of a list sorted by name, "" for the first page; raises `BadRequest`."""
    text = query_text(request, "cursor", _MAX_CURSOR)
    pagination.name_of(text)
    return text


_MAX_RANGES = 64
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


class _MediaRange(msgspec.Struct, frozen=True):
    kind: str
    quality: float
    order: int

    def fit(self, offered: str) -> int:
        """Return 2 for an exact match, 1 for its family (`image/*`), 0 for `*/*`, and -1 for no match."""
        if self.kind == offered:
            return 2
        if self.kind == offered.partition("/")[0] + "/*":
            return 1
        return 0 if self.kind == "*/*" else -1


def preferred_type(header: str | None, offered: tuple[str, ...]) -> str | None:
    """Return the type in `offered` that an `Accept` header prefers, or None if it accepts none of them.

    Without a preference, the first type is returned. At equal quality, an exact type wins over a wildcard.
    """
    ranges = _parse_accept(header or "*/*")
    candidates: list[tuple[float, int, int, int]] = []
    for position, kind in enumerate(offered):
        matches = [
            (accepted.fit(kind), -accepted.order, accepted.quality)
            for accepted in ranges
            if accepted.fit(kind) >= 0
        ]
        if not matches:
            continue
        fit, order, quality = max(matches)
        if quality > 0:
            candidates.append((quality, fit, order if fit == 2 else -_MAX_RANGES, -position))
    return offered[-max(candidates)[3]] if candidates else None


def _parse_accept(header: str) -> list[_MediaRange]:
    ranges: list[_MediaRange] = []
    for order, item in enumerate(header.split(",")[:_MAX_RANGES]):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if "/" in kind:
            ranges.append(_MediaRange(_ALIASES.get(kind, kind), _quality(parameters), order))
    return ranges or [_MediaRange("*/*", 1.0, 0)]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
