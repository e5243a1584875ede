"""Resources and methods of Replicate's API that this server does not have, with the alternative."""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.types import Scope

from sixfold import errors

DEPLOYMENTS = (
    "This server does not support deployments: run the model itself, which starts and stops on demand"
)
_BASE = "/replicate/v1/"
_MODEL = r"models/[^/]+/[^/]+"
_REMOVAL = "Models of an account are removed with DELETE /api/containers/templates/{name}"


class _UnsupportedRoute(NamedTuple):
    """Paths, by a regular expression for the part after the base, and the sentence for them."""

    path: re.Pattern[str]
    message: str
    methods: tuple[str, ...] = ()


_PATHS = (
    _UnsupportedRoute(re.compile(r"deployments/[^/]+/[^/]+/predictions"), DEPLOYMENTS),
    _UnsupportedRoute(
        re.compile(rf"{_MODEL}/(?:readme|examples)"),
        "Models of this server do not have a readme or examples: their schema describes the inputs",
    ),
    _UnsupportedRoute(
        re.compile(r"files/[^/]+/download"), "Download the file from the URL in its `urls.get`"
    ),
)
_METHODS = (
    _UnsupportedRoute(re.compile(rf"{_MODEL}(?:/versions/[^/]+)?"), _REMOVAL, ("DELETE",)),
    _UnsupportedRoute(re.compile(_MODEL), "The description of a model cannot be changed here", ("PATCH",)),
    _UnsupportedRoute(re.compile(r"deployments/[^/]+/[^/]+"), DEPLOYMENTS, ("PATCH", "DELETE")),
)


def missing(scope: Scope) -> errors.SixfoldError:
    """Return the error for an unknown path: `NotSupported` for one of Replicate's."""
    message = next((row.message for row in _PATHS if _matches(row, scope)), None)
    return errors.NotFound() if message is None else errors.NotSupported(message)


def wrong_method(scope: Scope) -> errors.SixfoldError:
    """Return the error for a method that a path does not support; for one of Replicate's, with a sentence."""
    rows = (row for row in _METHODS if scope["method"] in row.methods and _matches(row, scope))
    return errors.MethodNotAllowed(next((row.message for row in rows), ""))


def _matches(row: _UnsupportedRoute, scope: Scope) -> bool:
    return row.path.fullmatch(scope["path"].removeprefix(_BASE)) is not None
