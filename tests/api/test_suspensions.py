"""Suspended accounts: accepted work ends or waits, and data is kept; and exports that lose their right."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.account_data import deletion, export
from sixfold.core.accounts import accounts
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members, organizations
from sixfold.core.batches import lines
from sixfold.core.database import one
from sixfold.core.predictions.child_runs import ChildRun, PipelineChildren
from sixfold.core.predictions.models import Prediction
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_account_data import EXPORT, read_zip
from tests.api.test_batches import chat_line, content, create_batch, finished_batch
from tests.api.test_pages import signed_in
from tests.api.test_workflows_money import SPACES, template_graph

SUSPENDED = "The account is suspended"


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


@pytest.fixture
async def graphs(either: Path) -> AsyncIterator[AppFixture]:
    """A server that runs workflows, with `DotEngine` for every model."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    async with running_app(either, {**document, "engines": {**document["engines"], "graph": graph}}) as app:
        yield app


async def suspend(app: AppFixture, *, suspended: bool = True) -> None:
    await app.database.write(customers.suspend(app.operator.owner, app.account.id, suspended=suspended))


async def waiting_for(app: AppFixture, batch_id: str) -> str | None:
    """Return why a batch waits, read from the database, because the account may not read the batch."""
    params = {"id": batch_id, "account_id": app.account.id, "dialect": "openai", "credential_id": ""}
    row = await app.database.read(one("batch_by_id", **params))
    assert row is not None
    return row["waiting_for"]


async def until_status(gateway: Gateway, batch_id: str, status: int) -> None:
    """Wait until reading a batch has a status: verified keys are cached for a moment."""
    async with asyncio.timeout(30):
        while True:
            response = await gateway.app.client.get(f"/v1/batches/{batch_id}", headers=gateway.headers)
            if response.status_code == status:
                return
            await asyncio.sleep(0.02)


async def test_a_batch_waits_for_the_end_of_a_suspension(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SUSPENDED_SECONDS", 0)
    gateway.acme.mode = "wait"
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(60)])
    async with asyncio.timeout(30):
        await gateway.acme.request_event.wait()
    await suspend(gateway.app)
    # Verified keys are cached for a moment, in which further lines would run.
    await until_status(gateway, batch.id, 403)
    gateway.acme.mode = "well"
    gateway.acme.go_on.set()
    async with asyncio.timeout(30):
        while await waiting_for(gateway.app, batch.id) != SUSPENDED:  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(0.02)
    assert len(gateway.acme.requests) < 60
    await suspend(gateway.app, suspended=False)
    await until_status(gateway, batch.id, 200)
    final_batch = await finished_batch(gateway, batch)
    assert (final_batch.status, final_batch.error_file_id) == ("completed", None)
    answered = await content(gateway, final_batch.output_file_id)
    assert {line["response"]["status_code"] for line in answered} == {200}
    assert (len(answered), len(gateway.acme.requests)) == (60, 60)
    assert await gateway.app.faults() == ()


async def test_a_workflow_that_was_accepted_before_ends_as_usual(
    graphs: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, run = graphs, PipelineChildren.run

    async def suspended_first(self: PipelineChildren, parent: Prediction, child: ChildRun) -> Prediction:
        await suspend(app)
        return await run(self, parent, child)

    monkeypatch.setattr(PipelineChildren, "run", suspended_first)
    body = {"workflow": template_graph("ra1", prompt="a lake"), "name": "one"}
    slug = (await app.client.post(SPACES, json=body, headers=app.bearer)).json()["slug"]
    result: dict[str, Any] = (
        await app.client.post(f"{SPACES}/{slug}/run", json={}, headers=app.bearer)
    ).json()
    assert (result["status"], result["cost"]) == ("succeeded", "0.04")
    response = await app.client.get(f"/api/containers/predictions/{result['id']}", headers=app.bearer)
    assert response.status_code == 403
    await suspend(app, suspended=False)
    shown_response = await app.client.get(
        f"/api/containers/predictions/{result['id']}", headers=bearer(app.key)
    )
    assert shown_response.json()["status"] == "succeeded"
    assert await app.faults() == ()


@pytest.mark.parametrize("end", ["suspended", "closed"])
async def test_files_and_jobs_of_a_suspended_or_closed_account_are_404(either: Path, end: str) -> None:
    async with running_app(either) as app:
        image = await app.client.post("/api/ra1", json={"prompt": "a cat"}, headers=app.bearer)
        post = {"text": "a cat", "media_url": image.json()["image_url"]}
        posted = await app.client.post("/api/create-post", json=post, headers=app.bearer)
        path = {"prompt": "a cat", "save_path": "a/cat.png"}
        saved = await app.client.get("/create_and_upload_image", params=path, headers=app.bearer)
        assert saved.status_code == 200, saved.text
        urls = [image.json()["image_url"], posted.json()["media_url"], saved.json()["path"]]
        queued = await app.client.post(
            "/api/ra1", json={"prompt": "a cat", "response_mode": "polling"}, headers=app.bearer
        )
        job = queued.json()["status_url"]
        visitor = app.visitor("203.0.113.9")

        async def statuses() -> list[int]:
            shown = [(await visitor.get(url.removeprefix(app.settings.base_url))).status_code for url in urls]
            assert (await visitor.get(job)).status_code == shown[0]
            for url in urls:
                body = {"text": "mine", "media_url": url}
                copied = await app.client.post("/api/create-post", json=body, headers=bearer(app.other))
                assert copied.status_code == (200 if shown[0] == 200 else 400), copied.text
            return shown

        assert await statuses() == [200, 200, 200]
        if end == "suspended":
            await suspend(app)
        else:
            close = {"confirm": "ada@example.com"}
            await app.client.request("DELETE", "/api/account", json=close, headers=app.bearer)
        assert await statuses() == [404, 404, 404]
        if end == "suspended":
            await suspend(app, suspended=False)
        else:
            await app.database.write(deletion.reopen(app.account.id))
        assert await statuses() == [200, 200, 200]


@pytest.mark.parametrize("browser", [False, True])
async def test_export_of_a_suspended_account_is_complete(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, browser: bool
) -> None:
    app = any_database_app
    await suspend(app)
    ledger, closed = export._ledger, list[int]()

    async def checked(*arguments: Any) -> AsyncIterator[bytes]:
        async for piece in ledger(*arguments):
            yield piece
        closed.append(await app.server.connections.check())

    async def exported() -> httpx.Response:
        if browser:
            form = {"csrf": await signed_in(app)}
            return await app.client.post("/account/export", data=form)
        return await app.client.get(EXPORT, headers=app.bearer)

    monkeypatch.setattr(export, "_ledger", checked)
    assert "ledger.jsonl" in read_zip(await exported()).namelist()
    assert closed == [0]


async def suspend_app(app: AppFixture) -> None:
    await suspend(app)


async def transfer(app: AppFixture) -> None:
    """Make another user the owner, so that the user of the account's key becomes an admin."""
    await app.database.write(accounts.set_password_hash(app.account.id, "hash"))
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    heir = await app.database.write(members.add(app.account.id, cleo.id, "member", "operator"))
    await app.database.write(organizations.transfer(app.account.id, heir.id, "harbour"))


@pytest.mark.parametrize("browser", [False, True])
@pytest.mark.parametrize("change", [suspend_app, transfer])
async def test_export_in_progress_ends_with_the_right_to_it(
    any_database_app: AppFixture,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[AppFixture], Awaitable[None]],
    browser: bool,
) -> None:
    app = any_database_app
    ledger, closed = export._ledger, list[int]()

    async def ended(*arguments: Any) -> AsyncIterator[bytes]:
        async for piece in ledger(*arguments):
            yield piece
        await change(app)
        closed.append(await app.server.connections.check())

    form = {"csrf": await signed_in(app)}
    monkeypatch.setattr(export, "_ledger", ended)
    if browser:
        cut = await app.client.post("/account/export", data=form)
    else:
        cut = await app.client.get(EXPORT, headers=app.bearer)
    assert not zipfile.is_zipfile(io.BytesIO(cut.content))
    assert closed == [1]
