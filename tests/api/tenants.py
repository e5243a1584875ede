"""Objects of one account on every kind of route, and the routes to request as another account."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from starlette.types import ASGIApp

from sixfold.app import asgi, bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.accounts.organizations import members
from sixfold.settings import Settings
from sixfold.web.routing import RouteEntry
from sixfold.web.sessions import COOKIE, CSRF_HEADER, SessionCookie
from tests.api.app_fixture import AppFixture, small_models
from tests.api.test_comfyui_face import PAINT
from tests.api.test_pages import link

SECRET = "zeppelin"
PAGE = "airship"
ELSEWHERE = "203.0.113.9"
# Whose id alone is enough, on purpose: see CAPABILITIES of test_tenants.py, which has the described ones.
BY_ID = {"/media/{name}", "/uploads/{path:path}", "/api/media/status/{job_id}"}
# What ends the caller's own account or sign-in: asked last, so that all others are asked by somebody.
LAST = (
    *("/account/close", "/account/keep", "/account/sessions/end", "/signout", "/api/account"),
    *("/account/organizations", "/account/switch", "/account/members/leave"),
)
# Values that name nothing of an account's; a new name in a route's path has to be put here or into `owned`.
COMMON = {
    "account_id": "acct_1",
    "alert_id": "alert_1",
    "token": "none",
    "post_id": "post_none",
    "app": "fal-ai/flux/schnell",
    "area": "memory",
    "digest": "sha256:0",
    "class_type": "KSampler",
    "engine": "dot",
    "section": "aliases",
    "provider": "openai",
    "family": "chat",
    "folder": "checkpoints",
    "grant_id": "1",
    "model": "ra2",
    "model_id": "ra2",
    "name": "ra2",
    "owner": "sixfold",
    "version": "1",
    "path": "none.png",
    "passkey_id": "1",
}

OWN = ("prediction_id", "slug", "prompt_id", "job_id")


def built() -> ASGIApp:
    """An application that is only built."""
    with TemporaryDirectory() as folder:
        return asgi.create_app(bootstrap.build(Settings(data_dir=Path(folder)), small_models()))


def table(app: ASGIApp) -> list[RouteEntry]:
    """Every route of the router, described or not."""
    known: Any = vars(app)["_router"]  # the router has no other way to be listed
    results = [match.route for match in known._exact.values() if match.route is not None]
    return results + [route for _, _, route in known._patterns]


def routes(app: ASGIApp) -> Iterator[tuple[str, str]]:
    """Every method and path of the router; those that end the caller's account last."""
    pairs = [(method, route.path) for route in table(app) for method in sorted(route.handlers)]
    return iter(sorted(pairs, key=lambda pair: (pair[1] in LAST, pair[1])))


async def shared(app: AppFixture, prediction_id: str) -> str:
    """The id of a share of a run."""
    body = {"kind": "run", "id": prediction_id}
    return str((await app.client.post("/api/shares", json=body, headers=app.bearer)).json()["id"])


async def shared_folder(app: AppFixture) -> str:
    """The id of a folder that the first account shares with the third one."""
    body = {"folder": SECRET, "with": "cleo@example.com"}
    return str((await app.client.post("/api/shared-folders", json=body, headers=app.bearer)).json()["id"])


async def organized(app: AppFixture) -> dict[str, str]:
    """A team, an invitation, a key and a member of the first account's organization."""
    client, mine = app.client, app.bearer
    root = "/api/organization"
    team = (await client.post(f"{root}/teams", json={"name": SECRET}, headers=mine)).json()
    guest = {"email": f"{SECRET}@example.com", "team_id": team["id"]}
    invitation = (await client.post(f"{root}/invitations", json=guest, headers=mine)).json()
    key = (await client.post(f"{root}/keys", json={"team_id": team["id"]}, headers=mine)).json()
    cleo = await app.product.database.read(accounts.by_email("cleo@example.com"))
    joined = members.add(app.account.id, cleo.id, "admin", "operator", team["id"])
    member = await app.product.database.write(joined)
    return {
        "member_id": member.id,
        "team_id": team["id"],
        "invitation_id": invitation["id"],
        "key_id": key["id"],
    }


async def owned(app: AppFixture) -> dict[str, str]:
    """What the first account has, with the secret in all of it; gives its names as routes call them."""
    client, mine = app.client, app.bearer
    page = {"slug": PAGE, "title": SECRET, "body": SECRET, "tags": [SECRET], "collections": [SECRET]}
    assert (await client.post("/api/pages", json=page, headers=mine)).status_code == 201
    run = {"model": "ra2", "input": {"prompt": SECRET, "width": 64, "height": 64}}
    document = (await client.post("/api/containers/run", json=run, headers=mine)).json()
    space = {"workflow": PAINT, "name": SECRET}
    body = (await client.post("/api/graph/spaces", json=space, headers=mine)).json()
    prompt = (await client.post("/prompt", json={"prompt": PAINT}, headers=mine)).json()
    job = {"api_key": app.key, "prompt": SECRET, "response_mode": "polling"}
    polled = (await client.post("/api/ra1", json=job)).json()
    form = {"files": {"file": (SECRET, SECRET.encode())}, "data": {"purpose": "user_data"}}
    file = (await client.post("/v1/files", headers=mine, **form)).json()
    form = {"files": {"file": (SECRET, b"{}")}, "data": {"purpose": "batch"}}
    lines = (await client.post("/v1/files", headers=mine, **form)).json()
    expected = {
        "input_file_id": lines["id"],
        "endpoint": "/v1/responses",
        "completion_window": "24h",
        "metadata": {"job": SECRET},
    }
    batch = (await client.post("/v1/batches", json=expected, headers=mine)).json()
    async with asyncio.timeout(60):
        while batch["status"] != "failed":
            batch = (await client.get(f"/v1/batches/{batch['id']}", headers=mine)).json()
            await asyncio.sleep(0.02)
    parted = {"bytes": 1, "filename": SECRET, "mime_type": "text/plain", "purpose": "user_data"}
    upload = (await client.post("/v1/uploads", json=parted, headers=mine)).json()
    stored = {"name": SECRET, "metadata": {"of": SECRET}, "file_ids": [file["id"]]}
    store = (await client.post("/v1/vector_stores", json=stored, headers=mine)).json()
    batched = {"file_ids": [file["id"]], "attributes": {"of": SECRET}}
    in_store = f"/v1/vector_stores/{store['id']}"
    file_batch = (await client.post(f"{in_store}/file_batches", json=batched, headers=mine)).json()
    text = {"items": [{"role": "user", "content": SECRET}], "metadata": {"of": SECRET}}
    talk = (await client.post("/v1/conversations", json=text, headers=mine)).json()
    items = await client.get(f"/v1/conversations/{talk['id']}/items", headers=mine)
    talk_item = items.json()["data"][0]["id"]
    async with asyncio.timeout(60):
        while (await app.balance())[1] != "0.00":  # noqa: ASYNC110  # money has no event to wait for
            await asyncio.sleep(0.02)
    return (
        COMMON
        | await organized(app)
        | {
            "prediction_id": document["id"],
            "slug": PAGE,
            "space": body["slug"],
            "prompt_id": prompt["prompt_id"],
            "job_id": polled["job_id"],
            "session_id": "1",
            "request_id": document["id"],
            "response_id": "resp_1",
            "conversation_id": talk["id"],
            "item_id": talk_item,
            "video_id": "video_1",
            "file_id": file["id"],
            "upload_id": upload["id"],
            "vector_store_id": store["id"],
            "file_batch_id": file_batch["id"],
            "batch_id": batch["id"],
            "share_id": await shared(app, document["id"]),
            "folder_id": await shared_folder(app),
        }
    )


def filled(path: str, names: dict[str, str]) -> str:
    """A route's path with the first account's names in it."""
    slug = names["space"] if path.startswith(("/api/graph/", "/workflows/")) else names["slug"]
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: {**names, "slug": slug}[found[1]], path)


async def standing(app: AppFixture) -> list[Any]:
    """What the first account sees of its own."""
    paths = (
        f"/api/pages/{PAGE}",
        "/api/containers/predictions",
        "/api/account",
        "/api/graph/spaces",
        "/history",
        "/v1/files",
        "/v1/vector_stores",
        "/v1/batches",
        "/api/shares",
        "/api/organization",
        "/api/organization/members",
        "/api/organization/teams",
        "/api/organization/invitations",
        "/api/organization/keys",
    )
    return [(await app.client.get(path, headers=app.bearer)).json() for path in paths]


@asynccontextmanager
async def signed_in(app: AppFixture) -> AsyncIterator[httpx.AsyncClient]:
    """The second account in a browser elsewhere, with the token of the pages' forms."""
    account = await app.product.database.read(accounts.by_email("ben@example.com"))
    async with app.visitor(ELSEWHERE) as browser:
        await browser.get("/signin", params={"token": await link(app, account)})
        browser.headers[CSRF_HEADER] = SessionCookie(account, browser.cookies[COOKIE], account.owner).csrf
        yield browser
