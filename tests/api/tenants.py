"""Objects of one account for every kind of route, and the routes to request with other credentials."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from PIL import Image
from starlette.types import ASGIApp

from sixfold.api.media.jobs import PATHS
from sixfold.app import asgi, bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.accounts.authentication import login_sessions, oauth, passkeys
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction, now
from sixfold.core.gateway.conversations import responses
from sixfold.core.gateway.conversations.responses import StoredResponse
from sixfold.settings import Settings
from sixfold.web.routing import RouteEntry
from sixfold.web.sessions import COOKIE, CSRF_HEADER, SessionCookie
from tests.api.app_fixture import AppFixture, small_models
from tests.api.test_comfyui_clients import PAINT
from tests.api.test_pages import link
from tests.harness import image_files

SECRET = "zeppelin"
PAGE = "airship"
REMOTE_ADDRESS = "203.0.113.9"
REDIRECT = "https://client.example.com/callback"
RESPONSE = "resp_zeppelin"
# Objects that anyone with their id may read; CAPABILITIES of test_tenants.py has the documented ones.
READABLE_BY_ID = {"/media/{name}", "/uploads/{path:path}", *PATHS}
# Routes that end the caller's own account or sign-in; they are requested last.
LAST = (
    *("/account/close", "/account/keep", "/account/sessions/end", "/signout", "/api/account"),
    *("/account/organizations", "/account/switch", "/account/members/leave"),
)
# Path parameters that do not name an object of an account, or whose objects have separate tests: videos
# (test_openai_videos.py), and the tokens of shares, which are secrets (test_shares.py). Live sessions, which
# need workers, are in tests/e2e/test_sessions.py. `create_objects` returns all other parameters.
SHARED_NAMES = {
    "app": "fal-ai/flux/schnell",
    "area": "memory",
    "digest": "sha256:0",
    "class_type": "KSampler",
    "engine": "dot",
    "section": "aliases",
    "provider": "openai",
    "family": "chat",
    "folder": "checkpoints",
    "model": "ra2",
    "model_id": "ra2",
    "name": "ra2",
    "owner": "sixfold",
    "version": "1",
    "path": "none.png",
    "token": "none",
    "video_id": "video_1",
}

BODY_NAMES = ("prediction_id", "slug", "prompt_id", "job_id")


def built() -> ASGIApp:
    """Return an application that is not started."""
    with TemporaryDirectory() as folder:
        return asgi.create_app(bootstrap.build(Settings(data_dir=Path(folder)), small_models()))


def table(app: ASGIApp) -> list[RouteEntry]:
    """Return every route of the router, with those that no OpenAPI document describes."""
    # The router has no public list of its routes.
    router: Any = vars(app)["_router"]
    results = [match.route for match in router._exact.values() if match.route is not None]
    return results + [route for _, _, route in router._patterns]


def routes(app: ASGIApp) -> Iterator[tuple[str, str]]:
    """Yield every method and path of the router; those that end the caller's account last."""
    pairs = [(method, route.path) for route in table(app) for method in sorted(route.handlers)]
    return iter(sorted(pairs, key=lambda pair: (pair[1] in LAST, pair[1])))


def fill_path(path: str, names: dict[str, str]) -> str:
    """Return a route's path with the first account's names in it."""
    values = dict(names)
    if path.startswith(("/api/graph/", "/workflows/")):
        values["slug"] = names["space"]
    if path.startswith("/account/sessions/"):
        values["session_id"] = names["login_session_id"]
    return re.sub(r"\{(\w+)(:path)?\}", lambda match: values[match[1]], path)


async def create_objects(app: AppFixture) -> dict[str, str]:
    """Create objects of the first account that contain the secret; return their ids by path parameter."""
    names = SHARED_NAMES | await _runs_and_pages(app) | await _files(app)
    names |= await _organization(app) | await _credentials(app)
    async with asyncio.timeout(60):
        while (await app.balance())[1] != "0.00":  # noqa: ASYNC110  # money has no event to wait for
            await asyncio.sleep(0.02)
    return names


async def _runs_and_pages(app: AppFixture) -> dict[str, str]:
    client, headers = app.client, app.bearer
    page = {"slug": PAGE, "title": SECRET, "body": SECRET, "tags": [SECRET], "collections": [SECRET]}
    assert (await client.post("/api/pages", json=page, headers=headers)).status_code == 201
    run = {"model": "ra2", "input": {"prompt": SECRET, "width": 64, "height": 64}}
    prediction = (await client.post("/api/containers/run", json=run, headers=headers)).json()
    workflow = {"workflow": PAINT, "name": SECRET}
    space = (await client.post("/api/graph/spaces", json=workflow, headers=headers)).json()
    prompt = (await client.post("/prompt", json={"prompt": PAINT}, headers=headers)).json()
    job = {"api_key": app.key, "prompt": SECRET, "response_mode": "polling"}
    polled = (await client.post("/api/ra1", json=job)).json()
    share = {"kind": "run", "id": prediction["id"]}
    folder = {"folder": SECRET, "with": "cleo@example.com"}
    hero = {"api_key": app.key, "name": "Sailor"}
    # A post is public, so it does not contain the secret; only its author can delete it.
    post = {"api_key": app.key, "text": "a post", "media_bytes": base64.b64encode(_png()).decode()}
    return {
        "prediction_id": prediction["id"],
        "request_id": prediction["id"],
        "slug": PAGE,
        "space": space["slug"],
        "prompt_id": prompt["prompt_id"],
        "job_id": polled["job_id"],
        "share_id": await _created_id(app, "/api/shares", share),
        "folder_id": await _created_id(app, "/api/shared-folders", folder),
        "character_id": (await client.post("/api/create-ai", json=hero)).json()["id"],
        "post_id": (await client.post("/api/create-post", json=post)).json()["id"],
    }


async def _files(app: AppFixture) -> dict[str, str]:
    client, headers = app.client, app.bearer
    form = {"files": {"file": (SECRET, SECRET.encode())}, "data": {"purpose": "user_data"}}
    file = (await client.post("/v1/files", headers=headers, **form)).json()
    form = {"files": {"file": (SECRET, b"{}")}, "data": {"purpose": "batch"}}
    lines = (await client.post("/v1/files", headers=headers, **form)).json()
    job = {
        "input_file_id": lines["id"],
        "endpoint": "/v1/responses",
        "completion_window": "24h",
        "metadata": {"job": SECRET},
    }
    batch = (await client.post("/v1/batches", json=job, headers=headers)).json()
    async with asyncio.timeout(60):
        while batch["status"] != "failed":
            batch = (await client.get(f"/v1/batches/{batch['id']}", headers=headers)).json()
            await asyncio.sleep(0.02)
    upload = {"bytes": 1, "filename": SECRET, "mime_type": "text/plain", "purpose": "user_data"}
    store = {"name": SECRET, "metadata": {"of": SECRET}, "file_ids": [file["id"]]}
    store_id = await _created_id(app, "/v1/vector_stores", store)
    file_batch = {"file_ids": [file["id"]], "attributes": {"of": SECRET}}
    file_batch_id = await _created_id(app, f"/v1/vector_stores/{store_id}/file_batches", file_batch)
    state = {"status": "in_progress"}
    async with asyncio.timeout(60):
        while state["status"] != "completed":
            state = (await client.get(f"/v1/vector_stores/{store_id}", headers=headers)).json()
            await asyncio.sleep(0.02)
    text = {"items": [{"role": "user", "content": SECRET}], "metadata": {"of": SECRET}}
    conversation_id = await _created_id(app, "/v1/conversations", text)
    items = await client.get(f"/v1/conversations/{conversation_id}/items", headers=headers)
    document = f'{{"id": "{RESPONSE}", "object": "response", "status": "completed", "text": "{SECRET}"}}'
    stored = StoredResponse(RESPONSE, None, "", f'[{{"role": "user", "content": "{SECRET}"}}]', document)
    await app.database.write(responses.keep(Tenant(app.account.id), stored))
    return {
        "conversation_id": conversation_id,
        "item_id": items.json()["data"][0]["id"],
        "file_id": file["id"],
        "upload_id": await _created_id(app, "/v1/uploads", upload),
        "vector_store_id": store_id,
        "file_batch_id": file_batch_id,
        "batch_id": batch["id"],
        "response_id": RESPONSE,
    }


async def _organization(app: AppFixture) -> dict[str, str]:
    """Create a team, an invitation, a key and a member of the first account's organization."""
    root = "/api/organization"
    team_id = await _created_id(app, f"{root}/teams", {"name": SECRET})
    invitation = {"email": f"{SECRET}@example.com", "team_id": team_id}
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    joined = members.add(app.account.id, cleo.id, "admin", "operator", team_id)
    return {
        "account_id": app.account.id,
        "team_id": team_id,
        "invitation_id": await _created_id(app, f"{root}/invitations", invitation),
        "key_id": await _created_id(app, f"{root}/keys", {"team_id": team_id}),
        "member_id": (await app.database.write(joined)).id,
    }


async def _credentials(app: AppFixture) -> dict[str, str]:
    """Create a cost alert, a passkey, a login session and a program with access."""
    alert = {"period": "month", "threshold_usd": "1", "url": f"https://{SECRET}.example.com/alert"}
    write, account_id = app.database.write, app.account.id
    await write(_new_session(account_id))
    await write(_new_grant(account_id))
    (session,) = await app.database.read(login_sessions.of_account(account_id, ""))
    (grant,) = await app.database.read(oauth.of_account(account_id))
    return {
        "alert_id": await _created_id(app, "/api/account/alerts", alert),
        "passkey_id": await write(passkeys.add(account_id, b"credential", b"key", 0, SECRET)),
        "grant_id": str(grant["id"]),
        "login_session_id": str(session["id"]),
        "session_id": "sess_1",
    }


def _new_session(account_id: str) -> Transaction[str]:
    moment = yield from now()
    return (yield from login_sessions.new_session(account_id, moment, LoginDetails("link")))


def _new_grant(account_id: str) -> Transaction[str]:
    client = yield from oauth.register(SECRET, [REDIRECT])
    params = {"response_type": "code", "code_challenge_method": "S256", "code_challenge": "a" * 43}
    request = oauth.parse_authorization_request(client, REDIRECT, params, ())
    return (yield from oauth.grant(account_id, request))


async def _created_id(app: AppFixture, path: str, body: dict[str, Any]) -> str:
    response = await app.client.post(path, json=body, headers=app.bearer)
    assert response.is_success, (path, response.text)
    return str(response.json()["id"])


def _png() -> bytes:
    return image_files.encode(Image.new("RGB", (4, 4)))


async def state_of_objects(app: AppFixture) -> list[Any]:
    """Return the lists and objects of the first account, as it sees them itself."""
    paths = (
        f"/api/pages/{PAGE}",
        "/api/containers/predictions",
        "/api/account",
        "/api/graph/spaces",
        "/history",
        "/v1/files",
        "/v1/vector_stores",
        "/v1/batches",
        f"/v1/responses/{RESPONSE}",
        "/api/shares",
        "/api/shared-folders",
        "/api/account/alerts",
        "/api/posts",
        "/api/organization",
        "/api/organization/members",
        "/api/organization/teams",
        "/api/organization/invitations",
        "/api/organization/keys",
    )
    documents = [(await app.client.get(path, headers=app.bearer)).json() for path in paths]
    read, account_id = app.database.read, app.account.id
    credentials = (
        await read(passkeys.of_account(account_id)),
        await read(oauth.of_account(account_id)),
        await read(login_sessions.of_account(account_id, "")),
    )
    return [*documents, {"credentials": [[str(row["id"]) for row in rows] for rows in credentials]}]


@asynccontextmanager
async def signed_in(app: AppFixture) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a browser elsewhere where the second account is signed in, with the token of the pages' forms."""
    account = await app.database.read(accounts.by_email("ben@example.com"))
    async with app.visitor(REMOTE_ADDRESS) as browser:
        await browser.get("/signin", params={"token": await link(app, account)})
        browser.headers[CSRF_HEADER] = SessionCookie(account, browser.cookies[COOKIE], account.owner).csrf
        yield browser
