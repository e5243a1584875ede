"""Every route of the router with credentials that have no right to an account: nothing is read or changed."""

from __future__ import annotations

import io
import zipfile
from contextlib import AsyncExitStack
from typing import Any

import httpx
from PIL import Image

from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.authentication import key_changes
from sixfold.core.accounts.keys import Holder, KeyLimits
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Transaction, now
from sixfold.web.sessions import CSRF_HEADER
from tests.api.app_fixture import AppFixture, bearer
from tests.api.tenants import (
    BODY_NAMES,
    LAST,
    READABLE_BY_ID,
    REMOTE_ADDRESS,
    SECRET,
    built,
    create_objects,
    fill_path,
    routes,
    signed_in,
    state_of_objects,
)
from tests.api.test_pages import link

# What every key of an account that runs models may read: the names of its models, also in own predictions.
SHOWN_TO_ALL = (
    *("/api/graph/spaces", "/api/services", "/api/containers/templates"),
    *("/replicate/v1/models", "/replicate/v1/search", "/replicate/v1/predictions"),
)
# Keys of the first account: the rights of each, and whether it sees the runs of the account.
OWN_KEYS = {"run": (Rights.RUN, False), "run and account.read": (Rights.RUN | Rights.ACCOUNT_READ, True)}


def every_route() -> list[tuple[str, str]]:
    """Return the routes of a server that is only built: `make assurance` counts them."""
    return list(routes(built()))


def has_secret(path: str, response: httpx.Response) -> bool:
    """Return whether a response contains the secret, unless the object is readable by its id alone."""
    return response.status_code < 300 and path not in READABLE_BY_ID and SECRET in response.text


def body_with(names: dict[str, str]) -> dict[str, Any]:
    """Return a body that names objects of the first account."""
    ids = {name: names[name] for name in BODY_NAMES}
    return {**ids, "delete": [names["prompt_id"]], "id": names["prediction_id"]}


async def test_no_route_shows_or_changes_data_of_another_account(app: AppFixture) -> None:
    names = await create_objects(app)
    before = await state_of_objects(app)
    body = body_with(names)
    pairs, leaks = list(routes(app.asgi)), list[str]()
    async with app.visitor(REMOTE_ADDRESS) as caller, AsyncExitStack() as stack:
        browser = await stack.enter_async_context(signed_in(app))
        for method, path in pairs:
            if path in LAST:
                browser = await stack.enter_async_context(signed_in(app))
            url = fill_path(path, names)
            form = {**body, "csrf": browser.headers[CSRF_HEADER]}
            responses = [
                await caller.request(method, url, json=body, headers=bearer(app.other)),
                await browser.request(method, url, json=body),
                await browser.request(method, url, data=form),
            ]
            assert all(each.status_code < 500 or each.status_code == 503 for each in responses), (
                method,
                path,
            )
            leaks += [f"{method} {path}: {each.status_code}" for each in responses if has_secret(path, each)]
    assert leaks == []
    assert str(before).count(SECRET) > 5, "there was something to read"
    assert await state_of_objects(app) == before
    assert len(pairs) > 250


async def test_no_route_accepts_a_credential_that_has_ended(app: AppFixture) -> None:
    """Revoked, rolled and expired keys, and the key of a former member, are rejected."""
    names = await create_objects(app)
    ended_keys = await app.database.write(_ended_keys(app.account.id))
    before = await state_of_objects(app)
    body, wrong = body_with(names), list[str]()
    async with app.visitor(REMOTE_ADDRESS) as caller:
        for method, path in routes(app.asgi):
            url = fill_path(path, names)
            anonymous = await caller.request(method, url, json=body)
            for title, key in ended_keys.items():
                response = await caller.request(method, url, json=body, headers=bearer(key))
                is_open = response.status_code < 300 and anonymous.status_code >= 300
                if is_open or has_secret(path, response):
                    wrong.append(f"{title}: {method} {path}: {response.status_code}")
    assert "\n".join(wrong) == ""
    assert await state_of_objects(app) == before


async def test_no_proxy_may_store_a_private_response(app: AppFixture) -> None:
    """Proxies do not know that a key in `x-api-key` or in the URL is a credential."""
    names = await create_objects(app)
    wrong = list[str]()
    async with app.visitor(REMOTE_ADDRESS) as anonymous, app.visitor(REMOTE_ADDRESS) as browser:
        await browser.get("/signin", params={"token": await link(app)})
        for method, path in routes(app.asgi):
            if method != "GET" or path in READABLE_BY_ID:
                continue
            url = fill_path(path, names)
            public = await anonymous.get(url)
            for private in (await app.client.get(url, headers=app.bearer), await browser.get(url)):
                is_private = private.status_code < 300 and private.content != public.content
                control = private.headers.get("Cache-Control", "")
                if is_private and not control.startswith(("private", "no-store")):
                    wrong.append(f"{path}: {control!r}")
    assert "\n".join(wrong) == ""


def _ended_keys(account_id: str) -> Transaction[dict[str, str]]:
    """Return keys of an account that are no longer valid, by the reason."""
    revoked = yield from keys.create(account_id)
    yield from keys.revoke(revoked.id)
    rolled = yield from keys.create(account_id)
    yield from key_changes.roll(account_id, rolled.id)
    expired = yield from keys.create(account_id, expires_at=(yield from now()) - 1)
    person = yield from accounts.by_email("ben@example.com")
    member = yield from members.add(account_id, person.id, "admin", "operator")
    former = yield from keys.create(account_id, holder=Holder(member_id=member.id))
    yield from members.remove(account_id, member.id)
    return {
        "revoked": revoked.api_key,
        "rolled": rolled.api_key,
        "expired": expired.api_key,
        "former member": former.api_key,
    }


async def test_no_route_lets_a_narrow_key_change_the_account(any_database_app: AppFixture) -> None:
    """A key without `account.read` sees only its own work, and none changes what needs another right."""
    app = any_database_app
    names = await create_objects(app)
    vault = {"file": ("vault.zip", archive())}
    assert (await app.client.post("/api/documents", files=vault, headers=app.bearer)).status_code == 200
    (page_file,) = (await app.client.get("/v1/files?purpose=memory", headers=app.bearer)).json()["data"]
    before = await state_of_objects(app)
    body, wrong = body_with(names), list[str]()
    for title, (granted, sees_runs) in OWN_KEYS.items():
        headers = bearer(await app.limited_key(KeyLimits(), granted))
        for method, path in routes(app.asgi):
            # A key that sees the account's runs may also end and delete them.
            if sees_runs and method != "GET":
                continue
            file_ids = [names["file_id"], page_file["id"]] if "{file_id}" in path else [names["file_id"]]
            for file_id in file_ids:
                url = fill_path(path, names | {"file_id": file_id})
                response = await app.client.request(method, url, json=body, headers=headers)
                is_leak = has_secret(path, response) and not path.startswith(SHOWN_TO_ALL)
                is_leak = is_leak and not sees_runs
                is_file = response.status_code < 300 and file_id == page_file["id"] and page_file["id"] in url
                if is_leak or is_file:
                    wrong.append(f"{title}: {method} {path}: {response.status_code}")
    assert "\n".join(wrong) == ""
    after = await state_of_objects(app)
    pairs = zip(before, after, strict=True)
    assert [row for old, new in pairs for row in missing_rows(old, new)] == []


def missing_rows(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    """Return what is missing in a list or an object; a key may add its own work, and spend."""
    lists = [(rows, after.get(name)) for name, rows in before.items() if isinstance(rows, list)]
    if lists and "slug" not in before:
        return [row for rows, others in lists for row in rows if row not in (others or ())]
    return [name for name in ("body", "title", "tags") if before.get(name) != after.get(name)]


def archive() -> bytes:
    """Return a zip of a page that embeds an image."""
    data, image = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4, 4)).save(image, "PNG")
    with zipfile.ZipFile(data, "w") as target:
        target.writestr("lamp.md", "![[lamp.png]]")
        target.writestr("lamp.png", image.getvalue())
    return data.getvalue()
