"""The operator's pages: what they tell, and that they are there for nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import House, bearer, house
from tests.api.test_pages import signed_in

PATHS = ["/admin", "/admin/engines", "/admin/requests"]
RUN = "/api/containers/run"


async def run(home: House, prompt: str, key: str = "") -> str:
    """The id of a prediction that has ended."""
    body = {"model": "ra1", "input": {"prompt": prompt}}
    answer = await home.client.post(RUN, json=body, headers=bearer(key or home.key))
    return str(answer.json()["id"])


async def idle(home: House, count: int) -> None:
    """Wait until so many workers of the painter stand idle, and none works."""
    async with asyncio.timeout(60):
        wanted = {"busy": 0, "idle": count}
        while home.product.scheduler.snapshot()["scene-painter"] != wanted:  # noqa: ASYNC110 - none is told
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("path", [*PATHS, "/admin/requests/pred_0"])
async def test_for_tenants_and_strangers_the_operators_pages_are_not_there(home: House, path: str) -> None:
    unknown = await home.client.get(path)  # also from this machine
    assert (unknown.status_code, unknown.headers["location"].partition("?")[0]) == (303, "/signin")
    await signed_in(home)
    assert (await home.client.get(path)).status_code == 404
    assert 'href="/admin"' not in (await home.client.get("/catalog")).text
    async with home.visitor(peer="10.0.0.9") as stranger:
        answer = await stranger.get(path)
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/signin")


async def test_the_overview_tells_what_was_asked_what_failed_and_what_is_kept(home: House) -> None:
    await signed_in(home, home.operator)
    await run(home, "a fox")
    await run(home, "FAIL")
    page = (await home.client.get("/admin")).text
    assert "The paint has run out" in page
    assert "0.04" in page
    assert "ada@example.com" in page
    async with asyncio.timeout(60):  # a run has ended a moment before its worker is idle
        while "1 idle" not in page:
            page = (await home.client.get("/admin")).text


async def test_every_engine_stands_there_with_what_would_unlock_it(home: House) -> None:
    await signed_in(home, home.operator)
    page = (await home.client.get("/admin/engines")).text
    for name in home.product.catalog.engines():
        assert f"<code>{name}</code>" in page
    assert "<code>sixfold engines add image</code>" in page


async def test_a_file_that_is_no_model_stands_there_with_what_is_wrong(home: House) -> None:
    await signed_in(home, home.operator)
    folder = home.product.settings.data_dir / "models"
    folder.mkdir()
    (folder / "greet.py").write_text("def greet(:\n", "utf-8")
    await home.product.model_watcher.refresh()
    page = (await home.client.get("/admin/engines")).text
    assert "<code>models/greet.py</code>" in page
    assert "line 1: invalid syntax" in page


async def test_the_log_is_searched_over_all_accounts_and_shows_nobodys_words(either_home: House) -> None:
    home = either_home
    await signed_in(home, home.operator)
    first = await run(home, "a secret fox")
    second = await run(home, "FAIL", home.other)
    everything = (await home.client.get("/admin/requests")).text
    assert everything.index(second) < everything.index(first)
    for words, found, other in (
        ("ada@", first, second),
        ("run out", second, first),
        (first.upper(), first, second),
    ):
        page = (await home.client.get("/admin/requests", params={"q": words})).text
        assert found in page
        assert other not in page
    failed = (await home.client.get("/admin/requests", params={"status": "failed"})).text
    assert first not in failed
    assert (await home.client.get("/admin/requests", params={"q": "100%"})).text.count("<li>") == 0
    one = (await home.client.get(f"/admin/requests/{first}")).text
    assert "captured" in one
    for page in (everything, one):
        assert "secret" not in page
    assert (await home.client.get("/admin/requests", params={"cursor": "nonsense"})).status_code == 400


async def test_the_log_goes_on_where_its_page_ended(home: House) -> None:
    await signed_in(home, home.operator)
    made = [await run(home, f"fox {number}") for number in range(53)]
    page = (await home.client.get("/admin/requests")).text
    older = page.partition("cursor=")[2].partition('"')[0]
    rest = (await home.client.get(f"/admin/requests?cursor={older}")).text
    assert [one in page for one in made] == [False] * 3 + [True] * 50
    assert [one in rest for one in made] == [True] * 3 + [False] * 50


async def test_the_operator_stops_a_run_of_somebody_else(home: House) -> None:
    token = await signed_in(home, home.operator)
    body = {"model": "ra1", "input": {"prompt": "SLOW"}, "wait": 0}
    started = (await home.client.post(RUN, json=body, headers=home.bearer)).json()["id"]
    async with home.visitor(base_url="http://evil.example") as stranger:
        assert (await stranger.post(f"/admin/requests/{started}/cancel", data={})).status_code in (303, 403)
    assert started in (await home.client.get("/admin")).text
    answer = await home.client.post(f"/admin/requests/{started}/cancel", data={"csrf": token})
    assert answer.status_code == 303
    async with asyncio.timeout(60):
        found = await home.product.pipeline.get_any(started)
        ended = await home.product.pipeline.wait(found, 60)
    assert str(ended.state) == "canceled"
    await home.until("5.00", "0.00")


async def test_idle_workers_are_let_go_and_come_back_with_the_next_order(home: House) -> None:
    await run(home, "a fox")
    await idle(home, 1)
    token = await signed_in(home, home.operator)
    path = "/admin/workers/scene-painter/rest"
    assert "Stop idle" in (await home.client.get("/admin")).text
    assert (await home.client.post(path, data={"csrf": token})).status_code == 303
    await idle(home, 0)
    assert (await home.client.post("/admin/workers/nobody/rest", data={"csrf": token})).status_code == 303
    await run(home, "a second fox")
    token = await signed_in(home)
    assert (await home.client.post(path, data={"csrf": token})).status_code == 404
    await idle(home, 1)


async def test_the_operator_closes_a_session_of_somebody_else(tmp_path: Path) -> None:
    async with house(tmp_path, app_catalog.models_document()) as home:
        made = await home.client.post("/api/containers/motion-model/sessions", json={}, headers=home.bearer)
        session = made.json()["session_id"]
        token = await signed_in(home, home.operator)
        assert f"/admin/sessions/{session}/close" in (await home.client.get("/admin")).text
        path = f"/admin/sessions/{session}/close"
        assert (await home.client.post(path, data={"csrf": token})).status_code == 303
        told = await home.client.get(f"/api/containers/sessions/{session}", headers=home.bearer)
        assert told.json()["status"] in ("closing", "closed")
        assert (
            await home.client.post("/admin/sessions/sess_0/close", data={"csrf": token})
        ).status_code == 404
