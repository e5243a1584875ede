"""Validation of responses in tests against the schemas of their OpenAPI document."""

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
    """Path of an operation, its documented JSON responses by status, and the schemas of the document."""

    method: str
    path: re.Pattern[str]
    answers: Mapping[str, Any]
    components: Mapping[str, Any]


_KNOWN: dict[tuple[str, ...], list[Described]] = {}
_CHECKS: dict[tuple[int, str], jsonschema_rs.Validator] = {}


def operations(application: Application, app: WebApp) -> list[Described]:
    """Return every operation that has JSON responses, computed once for each choice of APIs."""
    areas = tuple(sorted(application.settings.enabled_apis))
    if areas not in _KNOWN:
        results: list[Described] = []
        openapi = documents(application, app.table.entries)
        for document in (openapi.plain(name, "http://127.0.0.1") for name in openapi):
            for path, item in document["paths"].items():
                pattern = re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(path)))
                for method, operation in item.items():
                    answers = {
                        status: answer["content"][_JSON]["schema"]
                        for status, answer in operation["responses"].items()
                        if _JSON in answer.get("content", {})
                    }
                    results.append(Described(method.upper(), pattern, answers, document["components"]))
        # The most specific path comes first.
        results.sort(key=lambda each: len(each.path.pattern), reverse=True)
        _KNOWN[areas] = results
    return _KNOWN[areas]


def check(application: Application, app: WebApp, response: httpx.Response) -> None:
    """Raise `ValidationError` if a JSON response does not match its document."""
    if response.headers.get("content-type") != _JSON:
        return
    request, status = response.request, str(response.status_code)
    for each in operations(application, app):
        if each.method == request.method and each.path.fullmatch(request.url.path) and status in each.answers:
            key = id(each), status
            if key not in _CHECKS:
                schema = {"components": each.components, **each.answers[status]}
                _CHECKS[key] = jsonschema_rs.validator_for(schema)
            _CHECKS[key].validate(response.json())
            return
