"""Operators set the guardrail of all accounts and what the log of calls stores."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.configuration import entries
from tests.api import browser
from tests.api.app_fixture import AppFixture, bearer
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_operator_configuration import CHAT, ROOT, log, put, running_server
from tests.api.test_pages import signed_in
from tests.mcp.loopback import serve

MAIL = {"messages": [{"role": "user", "content": "say 3 words to ann@example.com"}], "model": "box/small"}


async def shown(app: AppFixture) -> dict[str, Any]:
    headers = bearer(await app.operator_key())
    return (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()["content"]


async def test_guardrail_of_the_form_masks_the_next_call(either: Path) -> None:
    async with running_server(either) as (app, acme):
        box = {"kind": "openai", "base_url": acme.url, "local": True}
        assert await put(app, "gateway.upstreams", "box", box) == 200
        csrf = await signed_in(app, app.operator)
        form = {"csrf": csrf, "mask_emails": "1", "mask_responses": "1"}
        assert (await app.client.post("/admin/content/guardrail", data=form)).status_code == 303
        response = await app.client.post("/v1/chat/completions", json=MAIL, headers=app.bearer)
        assert response.status_code == 200, response.text
        assert "[EMAIL]" in json.dumps(acme.requests[-1].document)
        assert (await shown(app))["guardrail"]["mask"] == ["emails"]
        removal = {"csrf": csrf, "name": "guardrail"}
        assert (await app.client.post("/admin/content/guardrail/remove", data=removal)).status_code == 303
        await app.client.post("/v1/chat/completions", json=MAIL, headers=app.bearer)
        assert "ann@example.com" in json.dumps(acme.requests[-1].document)
        assert [(action, target) for action, target, *_ in await log(app)][:2] == [
            ("configuration.remove", "gateway.guardrail"),
            ("configuration.set", "gateway.guardrail"),
        ]


async def test_log_of_the_form_applies_without_a_restart(either: Path) -> None:
    async with running_server(either) as (app, _):
        csrf = await signed_in(app, app.operator)
        form = {"csrf": csrf, "log_bodies": "1", "log_days": "7"}
        assert (await app.client.post("/admin/content/log", data=form)).status_code == 303
        policy = app.server.gateway_runtime.gateway.policy
        assert (policy.log_bodies, policy.log_days) == (True, 7)
        wrong = await app.client.post("/admin/content/log", data={**form, "log_days": "many"})
        assert (wrong.status_code, "must be a number from 0" in wrong.text) == (400, True)
        for text in ("1" * 5000, "0000000019999999", "3651"):
            refused = await app.client.post("/admin/content/log", data={**form, "log_days": text})
            assert (refused.status_code, "must be a number from 0" in refused.text) == (400, True)
        content = await shown(app)
        assert (content["log_bodies"], content["log_days"], content["log_days_source"]) == (True, 7, "page")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("guardrail", {"mask": ["names"]}, "mask is a list of"),
        ("guardrail", {"mask_responses": True}, "mask_responses requires mask"),
        ("guardrail", {"hook": {"url": "ftp://guard"}}, "must be an http or https URL"),
        (
            "guardrail",
            {"hook": {"url": "https://me:pw@guard.example"}},
            'must not contain a user, password or query"',
        ),
        ("guardrail", {"hook": {"url": "https://[guard"}}, "hook is not a valid address"),
        ("log_days", -1, "log_days must be a whole number"),
        ("timeout_seconds", 5, "can be set only in sixfold.toml"),
        ("upstreams", {}, "can be set only in sixfold.toml"),
    ],
)
async def test_invalid_content_settings_are_refused(
    app: AppFixture, name: str, value: object, sentence: str
) -> None:
    headers = bearer(await app.operator_key())
    body = {"name": name, "value": value}
    response = await app.client.put(f"{ROOT}/configuration/gateway", json=body, headers=headers)
    assert (response.status_code, sentence in response.text) == (400, True), response.text
    assert await app.database.read(entries.all_entries()) == ()


async def test_settings_of_the_file_are_read_only(tmp_path: Path) -> None:
    text = '[gateway]\nlog_days = 9\n[gateway.guardrail]\nmask = ["cards"]\n'
    async with running_server(tmp_path, text) as (app, _):
        csrf = await signed_in(app, app.operator)
        page = (await app.client.get("/admin/content")).text
        assert page.count("from sixfold.toml") == 2
        assert "Masks cards in requests" in page
        assert await put(app, "gateway", "guardrail", {"mask": ["emails"]}) == 400
        saved = await app.client.post("/admin/content/log", data={"csrf": csrf, "log_bodies": "1"})
        assert saved.status_code == 303
        policy = app.server.gateway_runtime.gateway.policy
        assert (policy.log_bodies, policy.log_days) == (True, 9)
        # The rest of the table is unchanged.
        response = await app.client.post("/v1/chat/completions", json=CHAT, headers=app.bearer)
        assert response.status_code in {400, 404, 503}


async def test_log_of_the_file_without_a_limit_is_described(tmp_path: Path) -> None:
    async with running_server(tmp_path, "[gateway]\nlog_days = 0\n") as (app, _):
        await signed_in(app, app.operator)
        assert "Calls are kept without a limit." in (await app.client.get("/admin/content")).text


async def test_secret_in_the_hook_of_the_file_is_not_shown(tmp_path: Path) -> None:
    text = '[gateway.guardrail.hook]\nurl = "https://me:hidden-word@guard.example/check?key=hidden-word"\n'
    async with running_server(tmp_path, text) as (app, _):
        assert (await shown(app))["guardrail"]["hook"]["url"] == "https://guard.example/check"
        await signed_in(app, app.operator)
        page = (await app.client.get("/admin/content")).text
        assert ("https://guard.example/check" in page, "hidden-word" in page) == (True, False)


@pytest.mark.browser
@browser.needed
@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_content_page_sets_both_without_scripts(app: AppFixture, width: int) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    async with serve(app.asgi) as url, browser.browser() as chromium:
        async with browser.tab(chromium, operator, url, TabOptions(width=width, scripts=False)) as tab:
            page = tab.page
            await tab.open("/admin/content")
            await page.get_by_role("button", name="Save the guardrail").click()
            assert "Choose what to mask" in await page.inner_text("form .problem")
            tab.ignore("status of 400")
            await page.get_by_label("E-mail addresses").check()
            await page.get_by_role("button", name="Save the guardrail").click()
            await page.wait_for_selector("text='It is on.'")
            await page.get_by_label("Days to keep calls").fill("14")
            await page.get_by_role("button", name="Save the log").click()
            assert await page.get_by_label("Days to keep calls").input_value() == "14"
        async with browser.tab(chromium, operator, url, TabOptions(width=width)) as tab:
            await tab.open("/admin/content")
            assert await violations(tab.page) == []
            assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_change_waits_for_a_refresh_that_applies_it(tmp_path: Path) -> None:
    async with running_server(tmp_path) as (app, _):
        reloader = app.server.operator.reloader
        applying, allowed = asyncio.Event(), asyncio.Event()

        async def apply(_rows: object) -> None:
            applying.set()
            await allowed.wait()

        reloader.on_entries = apply
        saving = asyncio.create_task(put(app, "gateway", "log_days", 9))
        await applying.wait()
        other = asyncio.create_task(reloader.refresh())
        done, _ = await asyncio.wait({other}, timeout=0.2)
        assert not done
        allowed.set()
        await other
        assert app.server.gateway_runtime.gateway.policy.log_days == 9
        assert await saving == 200
