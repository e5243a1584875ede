"""An invalid cursor is a 400 on every paginated route, never an empty page."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.datastructures import QueryParams

from tests.api.app_fixture import AppFixture
from tests.api.tenants import LAST, create_objects, fill_path, routes, signed_in
from tests.api.test_pages import link

# All tags of one page, whose `next_cursor` is always null.
WHOLE = {"/api/tags/{slug:path}"}
INVALID = ["nonsense", "~", "zeppelin~", "after", "a" * 150, "\x01", "pred_1", "é"]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the query parameters that routes read."""
    names: list[str] = []
    get = QueryParams.get

    def record(params: QueryParams, key: str, default: Any = None) -> Any:
        names.append(key)
        return get(params, key, default)

    monkeypatch.setattr(QueryParams, "get", record)
    return names


def is_list(answer: httpx.Response) -> bool:
    """Return whether a response has the cursor of the next page."""
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return is_json and isinstance(answer.json(), dict) and "next_cursor" in answer.json()


async def test_routes_that_read_a_cursor_refuse_an_invalid_one(app: AppFixture, reads: list[str]) -> None:
    names = await create_objects(app)
    results: set[str] = set()
    answered: list[tuple[str, str, int]] = []
    async with signed_in(app) as browser, app.visitor() as operator:
        await operator.get("/signin", params={"token": await link(app, app.operator)})
        for method, path in routes(app.asgi):
            if method != "GET" or path in {*LAST, *WHOLE}:
                continue
            address = fill_path(path, names)
            for client, headers in (
                (app.client, app.bearer),
                (app.client, {}),
                (browser, {}),
                (operator, {}),
            ):
                reads.clear()
                usual = await client.get(address, headers=headers)
                if usual.status_code != 200 or not ("cursor" in reads or is_list(usual)):
                    continue
                results.add(path)
                for cursor in INVALID:
                    response = await client.get(address, params={"cursor": cursor}, headers=headers)
                    if response.status_code != 400:
                        answered.append((path, cursor, response.status_code))
    assert len(results) >= 28, results
    assert "/admin/requests" in results
    assert not answered
