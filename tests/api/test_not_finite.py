"""Numbers that are not finite are rejected, on every route and for every input of every model."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.core.catalog import inputs
from sixfold.web import bodies
from sixfold.web.app import WebApp
from sixfold.web.routing import RouteEntry
from tests.api.app_fixture import AppFixture

TEXTS = ("nan", "NaN", "inf", "-Infinity", "1e999")
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")
# Their body is a file, or is not read, or is read only with a configuration or a session.
UNREAD = {
    *("/api/uploads", "/pages/uploads", "/pages/origin", "/replicate/v1/files", "/fal/files/upload"),
    *("/signin/passkey/ask", "/api/webhooks/stripe"),
}
NAMES = (
    *(
        "limit",
        "seed",
        "width",
        "height",
        "steps",
        "wait",
        "fps",
        "n",
        "temperature",
        "speed",
        "scale",
        "number",
    ),
    *("max_tokens", "min_score", "duration", "offset", "quality", "cursor", "since", "until", "as_of"),
)


def _routes(app: AppFixture) -> list[RouteEntry]:
    table: Any = cast("WebApp", app.asgi)._router
    exact = [match.route for match in table._exact.values() if match.route is not None]
    return [*exact, *(route for _, _, route in table._patterns)]


def _path(route: RouteEntry) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", "ra1", route.path)


async def test_every_route_refuses_a_non_finite_json_number(app: AppFixture) -> None:
    headers = app.bearer | {"Content-Type": "application/json"}
    accepted: list[str] = []
    for route in _routes(app):
        for method in sorted(route.handlers.keys() & {"POST", "PUT", "PATCH"}):
            if not route.body_bytes or route.path in UNREAD:
                continue
            for number in NUMBERS:
                raw = f'{{"model":"ra1","prompt":"x","seed":{number},"input":{{"x":{number}}}}}'
                response = await app.client.request(method, _path(route), content=raw, headers=headers)
                if (
                    not 400 <= response.status_code < 500
                    and response.headers.get("Location", "")[:7] != "/signin"
                ):
                    accepted.append(
                        f"{method} {route.path} {number}: {response.status_code} {response.text[:100]}"
                    )
    assert not accepted, "\n".join(accepted)


async def test_no_route_fails_on_a_non_finite_query_parameter(app: AppFixture) -> None:
    broken: list[str] = []
    for route in _routes(app):
        for method in sorted(route.handlers.keys() & {"GET", "POST"}):
            for text in TEXTS:
                query = dict.fromkeys(NAMES, text)
                response = await app.client.request(method, _path(route), params=query, headers=app.bearer)
                if response.status_code >= 500 and response.status_code != 503:
                    broken.append(
                        f"{method} {route.path} {text}: {response.status_code} {response.text[:100]}"
                    )
    assert not broken, "\n".join(broken)


async def test_no_route_fails_on_a_non_finite_header(app: AppFixture) -> None:
    names = (
        "Prefer",
        "Last-Event-ID",
        "If-Match",
        "Range",
        "X-Stainless-Timeout",
        "Accept",
        "Idempotency-Key",
    )
    values = {"Prefer": "wait=nan", "Range": "bytes=nan-inf", "Accept": "image/png;q=nan"}
    headers = app.bearer | {name: values.get(name, "nan") for name in names}
    for route in _routes(app):
        for method in sorted(route.handlers.keys() & {"GET", "POST"}):
            response = await app.client.request(method, _path(route), headers=headers)
            assert response.status_code < 500 or response.status_code == 503, (
                method,
                route.path,
                response.text,
            )


@pytest.mark.parametrize("text", TEXTS)
async def test_every_numeric_input_refuses_a_non_finite_number(app: AppFixture, text: str) -> None:
    tried = 0
    for model in app.server.catalog.models():
        for descriptor in model.inputs:
            if descriptor.type not in ("number", "integer"):
                continue
            for value in (float(text), *bodies.from_text(model.inputs, {descriptor.name: text}).values()):
                with pytest.raises(errors.InvalidInput) as excinfo:
                    inputs.check(model.inputs, {descriptor.name: value})
                assert descriptor.name in {problem.input for problem in excinfo.value.problems}
                tried += 1
    assert tried > 100
