"""A check of every answer that a test gets: a documented one has the shape that its document gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import jsonschema_rs

from sixfold.app.asgi import documents
from sixfold.app.bootstrap import Application
from sixfold.web.app import WebApp

_JSON = "application/json"


class Described(NamedTuple):
    """An operation's path, its documented answers in JSON by status, and the document's other schemas."""

    method: str
    path: re.Pattern[str]
    answers: Mapping[str, Any]
    components: Mapping[str, Any]


_KNOWN: dict[tuple[str, ...], list[Described]] = {}
_CHECKS: dict[tuple[int, str], jsonschema_rs.Validator] = {}


def operations(product: Application, app: WebApp) -> list[Described]:
    """Return every operation that answers in JSON; made once for each choice of APIs."""
    areas = tuple(sorted(product.settings.enabled_apis))
    if areas not in _KNOWN:
        results: list[Described] = []
        whole = documents(product, app.table.entries)
        for document in (whole.plain(name, "http://127.0.0.1") for name in whole):
            for path, item in document["paths"].items():
                pattern = re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(path)))
                for method, operation in item.items():
                    answers = {
                        status: answer["content"][_JSON]["schema"]
                        for status, answer in operation["responses"].items()
                        if _JSON in answer.get("content", {})
                    }
                    results.append(Described(method.upper(), pattern, answers, document["components"]))
        results.sort(key=lambda each: len(each.path.pattern), reverse=True)  # the most exact path comes first
        _KNOWN[areas] = results
    return _KNOWN[areas]


def check(product: Application, app: WebApp, response: httpx.Response) -> None:
    """Raise `ValidationError` for an answer in JSON that is not as its document has it."""
    if response.headers.get("content-type") != _JSON:
        return
    request, status = response.request, str(response.status_code)
    for each in operations(product, app):
        if each.method == request.method and each.path.fullmatch(request.url.path) and status in each.answers:
            key = id(each), status
            if key not in _CHECKS:
                schema = {"components": each.components, **each.answers[status]}
                _CHECKS[key] = jsonschema_rs.validator_for(schema)
            _CHECKS[key].validate(response.json())
            return
