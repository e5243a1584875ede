"""The tenant tests detect stores that do not check ownership: each known fault is caught."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from tests.api.app_fixture import AppFixture, bearer

SECRET = "zeppelin"
# The statement that forgets its account, and the request that then shows what is another's.
FAULTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "page_by_slug": ("GET", f"/api/pages/{SECRET}", {}),
    "pages_list": ("GET", "/api/pages", {}),
    "tags_counted": ("GET", "/api/tags", {}),
    "types_counted": ("GET", "/api/types", {}),
    "collections_counted": ("GET", "/api/collections", {}),
    "pages_exported": ("GET", "/api/export", {}),
    "prediction_page": ("GET", "/api/containers/predictions", {}),
}
OWN = re.compile(r"((?:\w+\.)?account_id) = :account_id")


async def create_secret_objects(app: AppFixture) -> None:
    """Create objects of every kind for the first account, with the secret in each."""
    page = {"slug": SECRET, "body": SECRET, "tags": [SECRET], "type": SECRET, "collections": [SECRET]}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    run = {"model": "ra2", "input": {"prompt": SECRET, "width": 64, "height": 64}}
    assert (await app.client.post("/api/containers/run", json=run, headers=app.bearer)).status_code == 200


def ignore_owner(database: Any, name: str) -> None:
    """Change a statement, and the one that counts its rows, to ignore the owner."""
    for each in (name, f"{name}_sizes"):
        if (query := database.queries.get(each)) is not None:
            sql, change_count = OWN.subn(r"(\1 = :account_id OR \1 <> :account_id)", query.sql)
            assert change_count
            database.queries = {**database.queries, each: replace(query, sql=sql)}


async def leaks(app: AppFixture, name: str) -> bool:
    """Return whether a request of the second account returns the first one's secret."""
    method, path, inputs = FAULTS[name]
    answer = await app.client.request(method, path, headers=bearer(app.other), **inputs)
    response = answer.content.replace(path.encode(), b"")
    return answer.status_code == 200 and SECRET.encode() in response


@pytest.mark.parametrize("name", FAULTS)
async def test_statement_without_its_account_filter_is_detected(app: AppFixture, name: str) -> None:
    await create_secret_objects(app)
    assert not await leaks(app, name)
    ignore_owner(app.database, name)
    assert await leaks(app, name)
