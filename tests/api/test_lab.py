"""The operator's lab in testing mode: killed runs are repeated and charged once."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import json
import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.database import Query, Transaction
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_pages import signed_in
from tests.e2e.servers import serving
from tests.mcp.loopback import serve

HANGING = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra1=hang"}
FORM = "application/x-www-form-urlencoded"


async def test_lab_is_404_outside_testing_mode(tmp_path: Path) -> None:
    async with running_app(tmp_path, testing=False) as app:
        for method, path in (("GET", "/lab"), ("POST", "/lab/server/kill"), ("POST", "/lab/workers/x/kill")):
            assert (await app.client.request(method, path)).status_code == 404


async def test_lab_is_for_operators_only(app: AppFixture) -> None:
    assert (await app.client.get("/lab")).status_code == 303
    await signed_in(app, app.operator)
    page = await app.client.get("/lab")
    assert page.status_code == 200
    assert '<dd id="off">0</dd>' in page.text
    await signed_in(app)
    assert (await app.client.get("/lab")).status_code == 404
    assert (await app.client.post("/lab/server/kill")).status_code == 404
    async with app.visitor(peer="10.0.0.9") as other_client:
        assert (await other_client.get("/lab")).status_code == 303


async def test_lab_reports_a_wrong_sum_of_balances(app: AppFixture) -> None:
    one_more = Query("ledger_post", {"account_id": app.account.id, "id": app.account.id, "amount": 1})

    def spoil() -> Transaction[None]:
        yield one_more

    await app.database.write(spoil())
    await signed_in(app, app.operator)
    page = (await app.client.get("/lab")).text
    assert "the sum of all balances is 1 micro-dollars instead of 0" in page


@pytest.mark.nightly
async def test_server_killed_in_the_lab_resumes_its_work(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", **HANGING) as server:
        _, link = await server.command("account", "link", "local@localhost", "--json")
        response = await server.call(
            "GET", urlsplit(json.loads(link)["url"])._replace(scheme="", netloc="").geturl()
        )
        cookie = response.headers["set-cookie"].partition(";")[0]
        token = re.findall(
            rb'name="csrf" value="([^"]+)"', (await server.call("GET", "/lab", Cookie=cookie)).body
        )[0]
        order = {"api_key": server.key, "prompt": "x", "response_mode": "polling"}
        status = (await server.call("POST", "/api/ra1", order)).json["status_url"]
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            await server.call("POST", "/lab/server/kill", b"csrf=" + token, Content_Type=FORM, Cookie=cookie)
        assert await server.wait_for_exit() == -signal.SIGKILL
        server.environ["SIXFOLD_FAILPOINTS"] = ""
        await server.restart()
        async with asyncio.timeout(60):
            while (await server.call("GET", status)).json["status"] == "in_progress":  # noqa: ASYNC110 - it is polled
                await asyncio.sleep(0.05)
        assert (await server.call("GET", status)).json["status"] == "completed"
        assert b'<dd id="off">0</dd>' in (await server.call("GET", "/lab", Cookie=cookie)).body


@pytest.mark.nightly
@pytest.mark.browser
@browser.needed
async def test_run_of_a_worker_killed_in_the_lab_is_repeated(tmp_path: Path) -> None:
    changes = {"driver": "process", "failpoints": "engine.run.ra1=hang"}
    async with (
        running_app(tmp_path, app_catalog.models_document(), **changes) as app,
        serve(app.asgi) as url,
        browser.browser() as chromium,
        browser.tab(chromium, dataclasses.replace(app, account=app.operator), url) as tab,
    ):
        order = {"prompt": "x", "response_mode": "polling"}
        job = (await app.client.post("/api/ra1", json=order, headers=app.bearer)).json()
        await tab.open("/lab")
        await tab.page.wait_for_selector("td .status.running")
        await tab.page.click("[aria-label^='Kill the workers of']")
        await tab.page.wait_for_selector("#killed:has-text('1')")
        # Wait for the second attempt.
        await tab.page.wait_for_selector("td:has-text('2')")
        assert await tab.page.inner_text("#off") == "0"
        assert (await app.client.delete(job["status_url"])).status_code == 200
        await app.until("5.00", "0.00")
