"""A second account asks every route of the router for what is the first one's: nothing is read or changed."""

from __future__ import annotations

import io
import zipfile
from contextlib import AsyncExitStack
from typing import Any

import httpx
from PIL import Image

from sixfold.core.accounts.keys import Scope
from sixfold.core.accounts.rights import Rights
from sixfold.web.sessions import CSRF_HEADER
from tests.api.app_fixture import AppFixture, bearer
from tests.api.tenants import (
    BY_ID,
    ELSEWHERE,
    LAST,
    OWN,
    SECRET,
    built,
    filled,
    owned,
    routes,
    signed_in,
    standing,
)


def every_route() -> list[tuple[str, str]]:
    """Return the routes of a server that is only built: `make assurance` counts them."""
    return list(routes(built()))


def told(path: str, answer: httpx.Response) -> bool:
    """Whether an answer has the secret in it, where its id alone is not enough."""
    return answer.status_code < 300 and path not in BY_ID and SECRET in answer.text


async def test_no_route_shows_or_changes_data_of_another_account(app: AppFixture) -> None:
    names = await owned(app)
    before = await standing(app)
    body = {
        **{name: names[name] for name in OWN},
        "delete": [names["prompt_id"]],
        "id": names["prediction_id"],
    }
    pairs, leaks = list(routes(app.asgi)), list[str]()
    async with app.visitor(ELSEWHERE) as caller, AsyncExitStack() as stack:
        browser = await stack.enter_async_context(signed_in(app))
        for method, path in pairs:
            if path in LAST:
                browser = await stack.enter_async_context(signed_in(app))
            where = filled(path, names)
            form = {**body, "csrf": browser.headers[CSRF_HEADER]}
            answers = [
                await caller.request(method, where, json=body, headers=bearer(app.other)),
                await browser.request(method, where, json=body),
                await browser.request(method, where, data=form),
            ]
            assert all(each.status_code < 500 or each.status_code == 503 for each in answers), (method, path)
            leaks += [f"{method} {path}: {each.status_code}" for each in answers if told(path, each)]
    assert leaks == []
    assert str(before).count(SECRET) > 5, "there was something to be read"
    assert await standing(app) == before
    assert len(pairs) > 250


# What every key of an account that runs models may read: the names of its models, also in own predictions.
SHOWN_TO_ALL = (
    *("/api/graph/spaces", "/api/services", "/api/containers/templates"),
    *("/replicate/v1/models", "/replicate/v1/search", "/replicate/v1/predictions"),
)
# Keys of the first account: the rights of each, and whether it sees the runs of the account.
OWN_KEYS = {
    "run": (Rights.RUN, False),
    "run and account.read": (Rights.RUN | Rights.ACCOUNT_READ, True),
}


async def test_no_route_lets_a_narrow_key_change_the_account(any_database_app: AppFixture) -> None:
    """A key without `account.read` sees only its own work, and none changes what needs another right."""
    app = any_database_app
    names = await owned(app)
    image = {"file": ("vault.zip", archive())}
    assert (await app.client.post("/api/documents", files=image, headers=app.bearer)).status_code == 200
    (page_file,) = (await app.client.get("/v1/files?purpose=memory", headers=app.bearer)).json()["data"]
    before = await standing(app)
    body = {
        **{name: names[name] for name in OWN},
        "delete": [names["prompt_id"]],
        "id": names["prediction_id"],
    }
    wrong = list[str]()
    for title, (granted, sees_runs) in OWN_KEYS.items():
        headers = bearer(await app.limited_key(Scope(), granted))
        for method, path in routes(app.asgi):
            # A key that sees the account's runs may also end and delete them.
            if sees_runs and method != "GET":
                continue
            for file_id in (
                (names["file_id"], page_file["id"]) if "{file_id}" in path else (names["file_id"],)
            ):
                where = filled(path, names | {"file_id": file_id})
                answer = await app.client.request(method, where, json=body, headers=headers)
                is_leak = told(path, answer) and not path.startswith(SHOWN_TO_ALL)
                is_leak = is_leak and not sees_runs
                is_file = answer.status_code < 300 and file_id == page_file["id"] and page_file["id"] in where
                if is_leak or is_file:
                    wrong.append(f"{title}: {method} {path}: {answer.status_code}")
    assert "\n".join(wrong) == ""
    after = await standing(app)
    assert [row for one, other in zip(before, after, strict=True) for row in lost(one, other)] == []


def lost(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    """What a list or a record had before; a key may add work of its own, and spends."""
    lists = [(rows, after.get(name)) for name, rows in before.items() if isinstance(rows, list)]
    if lists and "slug" not in before:
        return [row for rows, others in lists for row in rows if row not in (others or ())]
    return [name for name in ("body", "title", "tags") if before.get(name) != after.get(name)]


def archive() -> bytes:
    """A zip of a page that embeds an image."""
    data, image = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4, 4)).save(image, "PNG")
    with zipfile.ZipFile(data, "w") as target:
        target.writestr("lamp.md", "![[lamp.png]]")
        target.writestr("lamp.png", image.getvalue())
    return data.getvalue()
