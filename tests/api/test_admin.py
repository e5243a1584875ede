"""The operator's pages: their content, and 404 for every other account."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.operation import actions
from sixfold.core.predictions import admin_figures
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.gateway import Gateway
from tests.api.test_pages import signed_in
from tests.harness.waiting import wait_until

PATHS = ["/admin", "/admin/engines", "/admin/requests"]
RUN = "/api/containers/run"


async def run(app: AppFixture, prompt: str, key: str = "") -> str:
    """Return the id of a prediction that has ended."""
    body = {"model": "ra1", "input": {"prompt": prompt}}
    response = await app.client.post(RUN, json=body, headers=bearer(key or app.key))
    return str(response.json()["id"])


async def idle(app: AppFixture, count: int) -> None:
    """Wait until `count` workers of the painter are idle, and none is busy."""
    async with asyncio.timeout(60):
        expected = {"busy": 0, "idle": count}
        await wait_until(lambda: app.server.scheduler.snapshot()["scene-painter"] == expected)


@pytest.mark.parametrize("path", [*PATHS, "/admin/requests/pred_0"])
async def test_admin_pages_are_hidden_from_tenants_and_anonymous(app: AppFixture, path: str) -> None:
    # Connections from this machine are anonymous as well.
    unknown = await app.client.get(path)
    assert (unknown.status_code, unknown.headers["location"].partition("?")[0]) == (303, "/signin")
    await signed_in(app)
    assert (await app.client.get(path)).status_code == 404
    assert 'href="/admin"' not in (await app.client.get("/catalog")).text
    async with app.visitor(peer="10.0.0.9") as other_client:
        response = await other_client.get(path)
    assert (response.status_code, response.headers["location"].partition("?")[0]) == (303, "/signin")


async def test_admin_overview_shows_requests_failures_and_storage(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    await run(app, "a fox")
    await run(app, "FAIL")
    page = (await app.client.get("/admin")).text
    assert "The paint has run out" in page
    assert "0.04" in page
    assert "ada@example.com" in page
    # A worker becomes idle shortly after its run has ended.
    async with asyncio.timeout(60):
        while "1 idle" not in page:
            page = (await app.client.get("/admin")).text


async def test_overview_counts_the_calls_of_the_gateway(any_database_gateway: Gateway) -> None:
    app = any_database_gateway.app
    await any_database_gateway.chat()
    any_database_gateway.acme.mode = "fail"
    await any_database_gateway.chat()
    earned = [call["cost_usd"] for call in await any_database_gateway.settled(2)][-1]
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin")).text
    assert "<dt>Requests, 24 h</dt><dd>2</dd>" in page
    assert "<dt>Failed, 24 h</dt><dd>1</dd>" in page
    assert f'<dt>Earned, 24 h</dt><dd><data value="{earned}"' in page


async def test_engines_page_lists_every_engine_with_its_remedy(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin/engines")).text
    for name in app.server.catalog.engines():
        assert f"<code>{name}</code>" in page
    assert "<code>sixfold engines add image</code>" in page


async def test_engines_page_shows_the_error_of_an_invalid_model_file(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    folder = app.settings.data_dir / "models"
    folder.mkdir()
    (folder / "greet.py").write_text("def greet(:\n", "utf-8")
    await app.server.model_watcher.refresh()
    page = (await app.client.get("/admin/engines")).text
    assert "<code>models/greet.py</code>" in page
    assert "line 1: invalid syntax" in page


async def test_admin_log_searches_all_accounts_without_prompts(any_database_app: AppFixture) -> None:
    app = any_database_app
    await signed_in(app, app.operator)
    first = await run(app, "a secret fox")
    second = await run(app, "FAIL", app.other)
    everything = (await app.client.get("/admin/requests")).text
    assert everything.index(second) < everything.index(first)
    for words, result, other in (
        ("ada@", first, second),
        ("run out", second, first),
        (first.upper(), first, second),
    ):
        page = (await app.client.get("/admin/requests", params={"q": words})).text
        assert result in page
        assert other not in page
    failed = (await app.client.get("/admin/requests", params={"status": "failed"})).text
    assert first not in failed
    assert '<p class="error">' in failed, "other notes are not errors"
    assert (await app.client.get("/admin/requests", params={"q": "100%"})).text.count("<li>") == 0
    details = (await app.client.get(f"/admin/requests/{first}")).text
    assert "charged" in details
    for page in (everything, details):
        assert "secret fox" not in page
    assert (await app.client.get("/admin/requests", params={"cursor": "nonsense"})).status_code == 400


async def test_second_page_of_the_log_starts_after_the_first(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    results = [await run(app, f"fox {number}") for number in range(53)]
    page = (await app.client.get("/admin/requests")).text
    older = page.partition("cursor=")[2].partition('"')[0]
    rest = (await app.client.get(f"/admin/requests?cursor={older}")).text
    assert [result in page for result in results] == [False] * 3 + [True] * 50
    assert [result in rest for result in results] == [True] * 3 + [False] * 50


async def test_operator_cancels_a_run_of_another_account(app: AppFixture) -> None:
    token = await signed_in(app, app.operator)
    body = {"model": "ra1", "input": {"prompt": "SLOW"}, "wait": 0}
    started = (await app.client.post(RUN, json=body, headers=app.bearer)).json()["id"]
    async with app.visitor(base_url="http://evil.example") as other_client:
        assert (await other_client.post(f"/admin/requests/{started}/cancel", data={})).status_code in (
            303,
            403,
        )
    assert started in (await app.client.get("/admin")).text
    response = await app.client.post(f"/admin/requests/{started}/cancel", data={"csrf": token})
    assert response.status_code == 303
    async with asyncio.timeout(60):
        result = await app.predictions.get_any(started)
        prediction = await app.predictions.wait(result, 60)
    assert str(prediction.state) == "canceled"
    await app.until("5.00", "0.00")


async def test_idle_workers_stop_and_restart_with_the_next_request(app: AppFixture) -> None:
    await run(app, "a fox")
    await idle(app, 1)
    token = await signed_in(app, app.operator)
    path = "/admin/workers/scene-painter/rest"
    assert "Stop idle" in (await app.client.get("/admin")).text
    assert (await app.client.post(path, data={"csrf": token})).status_code == 303
    await idle(app, 0)
    assert (await app.client.post("/admin/workers/nobody/rest", data={"csrf": token})).status_code == 303
    await run(app, "a second fox")
    token = await signed_in(app)
    assert (await app.client.post(path, data={"csrf": token})).status_code == 404
    await idle(app, 1)


async def test_operator_closes_a_session_of_another_account(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        response = await app.client.post("/api/containers/motion-model/sessions", json={}, headers=app.bearer)
        session = response.json()["session_id"]
        token = await signed_in(app, app.operator)
        assert f"/admin/sessions/{session}/close" in (await app.client.get("/admin")).text
        path = f"/admin/sessions/{session}/close"
        assert (await app.client.post(path, data={"csrf": token})).status_code == 303
        reply = await app.client.get(f"/api/containers/sessions/{session}", headers=app.bearer)
        assert reply.json()["status"] in ("closing", "closed")
        assert (
            await app.client.post("/admin/sessions/sess_0/close", data={"csrf": token})
        ).status_code == 404


async def test_overview_charts_the_day_and_operator_actions_are_logged(any_database_app: AppFixture) -> None:
    app = any_database_app
    csrf = await signed_in(app, app.operator)
    prediction = await run(app, "a fox")
    await run(app, "FAIL")
    page = (await app.client.get("/admin")).text
    assert "Errors, 24 hours: highest 1 between" in page
    assert "Queue and workers, 24 hours" in page
    slots = await app.database.read(admin_figures.day())
    assert 0 < sum(slot.busy for slot in slots) < 1
    assert "<b>0.04</b> USD by runs" in page
    headers = bearer(await app.operator_key())
    slots = (await app.client.get("/api/operator/figures", headers=headers)).json()["slots"]
    assert len(slots) == 48
    assert (slots[-1]["runs"], slots[-1]["failed"], slots[-1]["earned_usd"]) == (2, 1, "0.04")
    assert slots[-1]["p95_seconds"] >= slots[-1]["median_seconds"] > 0
    await app.client.post("/admin/workers/scene-painter/rest", data={"csrf": csrf})
    await app.client.post(f"/admin/requests/{prediction}/cancel", data={"csrf": csrf})
    log = await app.database.read(actions.page(9, None))
    assert [(each.action, each.target) for each in log.actions] == [
        ("run.cancel", prediction),
        ("workers.stop", "engines.scene-painter"),
    ]
    assert prediction in (await app.client.get("/admin/audit?target=pred_")).text
    assert prediction not in (await app.client.get("/admin/audit?target=engines.")).text
