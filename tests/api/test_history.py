"""The history: filters, groups, deletion of runs, and actions on a result."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database, Transaction, many
from sixfold.core.predictions.history import deletion, entries
from sixfold.core.predictions.history.entries import HistoryFilter, RunHistory
from sixfold.core.sessions.recording import KEPT_SECONDS
from tests.api.app_fixture import ORIGIN, AppFixture, running_app, small_models
from tests.api.test_pages import signed_in

RUN = "/api/containers/run"
GRAPH = "/api/graph/spaces/turbo-text-to-image/run"
SMALL = {"width": 64, "height": 64}


@pytest.fixture
async def dot_app(either: Path) -> AsyncIterator[AppFixture]:
    """A server with dot engines and real workflows, on both databases."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    async with running_app(either, {**document, "engines": {**document["engines"], "graph": graph}}) as app:
        yield app


@pytest.fixture
async def live_app(either: Path) -> AsyncIterator[AppFixture]:
    """A server whose live sessions stay open, on both databases."""
    async with running_app(either, small_models(real=("procedural-motion",))) as app:
        yield app


async def run_model(app: AppFixture, prompt: str, key: str = "") -> dict[str, Any]:
    body = {"model": "ra2", "input": {"prompt": prompt, **SMALL}}
    headers = {"Authorization": f"Bearer {key or app.key}"}
    return (await app.client.post(RUN, json=body, headers=headers)).json()


async def test_history_is_searched_grouped_and_paged(dot_app: AppFixture) -> None:
    app = dot_app
    for prompt in ("Ein Mühlrad im Nebel", 'a "quoted" fox', "a fox in snow"):
        await run_model(app, prompt)
    await run_model(app, "a fox of another", app.other)
    body = {"input": {"prompt": "a mill", **SMALL}}
    graph = (await app.client.post(GRAPH, json=body, headers=app.bearer)).json()
    history, tenant = RunHistory(app.database), Tenant(app.account.id)

    async def titles(filters: HistoryFilter) -> list[str]:
        return [entry.title for entry in (await history.page(tenant, filters, 10)).entries]

    assert await titles(HistoryFilter(words=("FOX",))) == ["a fox in snow", 'a "quoted" fox']
    assert await titles(HistoryFilter(words=("mühlrad", "NEBEL"))) == ["Ein Mühlrad im Nebel"]
    assert await titles(HistoryFilter(words=("prompt",))) == []
    assert await titles(HistoryFilter(kind=entries.WORKFLOW)) == ["a mill"]
    assert await titles(HistoryFilter(kind="audio")) == []
    assert await titles(HistoryFilter(model="ra2", state="succeeded")) == [
        "a fox in snow",
        'a "quoted" fox',
        "Ein Mühlrad im Nebel",
    ]
    everything = await history.page(tenant, HistoryFilter(), 10)
    assert [entry.id for entry in everything.entries if entry.parts] == [graph["id"]]
    assert len(everything.entries) == 4
    assert everything.entries[0].files
    day = everything.entries[0].day
    assert await titles(HistoryFilter(last_day=day - 1)) == []
    assert len(await titles(HistoryFilter(first_day=day, last_day=day))) == 4
    ids: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await history.page(tenant, HistoryFilter(), 1, cursor)
        ids += [entry.id for entry in page.entries]
        cursor = page.next_cursor
    assert ids == [entry.id for entry in everything.entries]
    with pytest.raises(errors.BadRequest):
        await history.page(tenant, HistoryFilter(), 1, "pred_x")


async def test_a_search_reads_a_bounded_number_of_runs(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "WINDOW", 2)
    monkeypatch.setattr(entries, "MAX_SCANNED", 4)
    for number in range(6):
        await run_model(app, f"fox {number}")
    history, tenant = RunHistory(app.database), Tenant(app.account.id)
    page = await history.page(tenant, HistoryFilter(words=("0",)), 10)
    assert (page.entries, page.searched_to is not None) == ((), True)
    page = await history.page(tenant, HistoryFilter(words=("0",)), 10, page.next_cursor or "")
    assert [entry.title for entry in page.entries] == ["fox 0"]
    assert page.next_cursor is None


async def test_live_sessions_are_in_the_history(any_database_app: AppFixture) -> None:
    app = any_database_app
    first = await run_model(app, "a fox")
    path = "/api/containers/motion-model/sessions"
    live = (await app.client.post(path, json={"input": {"prompt": "wave"}}, headers=app.bearer)).json()
    deletion = await app.client.delete(f"/api/containers/sessions/{live['session_id']}", headers=app.bearer)
    assert deletion.status_code == 200
    last = await run_model(app, "a hen")
    history, tenant = RunHistory(app.database), Tenant(app.account.id)
    page = await history.page(tenant, HistoryFilter(), 10)
    assert [entry.id for entry in page.entries] == [last["id"], live["session_id"], first["id"]]
    page = await history.page(tenant, HistoryFilter(), 2)
    assert [entry.id for entry in page.entries] == [last["id"], live["session_id"]]
    page = await history.page(tenant, HistoryFilter(), 2, page.next_cursor or "")
    assert [entry.id for entry in page.entries] == [first["id"]]
    only = await history.page(tenant, HistoryFilter(kind=entries.LIVE), 10)
    assert [(entry.title, entry.is_session) for entry in only.entries] == [("wave", True)]


class CountingDatabase:
    """Counts the reads of a database."""

    def __init__(self, database: Database) -> None:
        self.reads = 0
        self._database = database
        self.write, self.close = database.write, database.close

    async def read(
        self, transaction: Transaction[Any], *, snapshot: bool = True, in_thread: bool = False
    ) -> Any:
        self.reads += 1
        return await self._database.read(transaction, snapshot=snapshot, in_thread=in_thread)


async def test_reads_of_a_page_do_not_grow_with_its_sessions(any_database_app: AppFixture) -> None:
    app = any_database_app
    path, tenant = "/api/containers/motion-model/sessions", Tenant(app.account.id)
    reads: list[int] = []
    for number in (1, 2, 3):
        live = (await app.client.post(path, json={"input": {"prompt": "wave"}}, headers=app.bearer)).json()
        await app.client.delete(f"/api/containers/sessions/{live['session_id']}", headers=app.bearer)
        counting = CountingDatabase(app.database)
        history = RunHistory(counting)
        page = await history.page(tenant, HistoryFilter(), 10)
        assert len(page.entries) == number
        assert all(entry.completed_at for entry in page.entries)
        by_id = await history.by_ids(tenant, [entry.id for entry in page.entries])
        assert by_id == list(page.entries)
        reads.append(counting.reads)
    assert len(set(reads)) == 1, reads


async def test_live_session_is_shared_by_its_recording_and_deleted(live_app: AppFixture) -> None:
    app = live_app
    token = await signed_in(app)
    path, tenant = "/api/containers/motion-model/sessions", Tenant(app.account.id)
    body = {"input": {"prompt": "wave"}}
    ids = [
        (await app.client.post(path, json=body, headers=app.bearer)).json()["session_id"] for _ in range(2)
    ]
    open_id, ended_id = ids
    await app.server.live_sessions.start_recording(ended_id, tenant)
    runner = next(each for each in app.server.live_sessions.running if each.session.id == ended_id)
    assert runner.recording is not None
    runner.recording.add(0, "json", b"{}")
    headers = {"X-CSRF-Token": token, "Origin": ORIGIN}
    stop = f"/pages/sessions/{ended_id}/recording"
    recording = (await app.client.post(stop, json={"on": False}, headers=headers)).json()["id"]
    await app.predictions.wait(await app.predictions.get(recording, tenant), 30)
    assert (await app.client.delete(f"/api/containers/sessions/{ended_id}", headers=app.bearer)).is_success
    page = await RunHistory(app.database).page(tenant, HistoryFilter(kind=entries.LIVE), 10)
    assert [(entry.id, entry.recording) for entry in page.entries] == [(ended_id, recording), (open_id, "")]
    assert page.entries[0].files
    assert entries.RECORDING_US >= KEPT_SECONDS * SECOND_US
    text = (await app.client.get("/predictions?kind=live")).text
    assert f"/shares/new?kind=run&amp;id={recording}" in text
    assert re.findall(r'name="id" value="(sess_[^"]+)"', text) == [ended_id, open_id]

    selection = f"/predictions/selection?id={ended_id}&id={recording}"
    assert "1 run and 1 live session selected" in (await app.client.get(selection)).text
    before, form = await app.balance(), {"ids": open_id, "csrf": token}
    assert (await app.client.post("/predictions/selection", data=form)).status_code == 409
    with pytest.raises(errors.NotFound):
        await app.database.write(deletion.delete_session(ended_id, Tenant("acct_other")))
    response = await app.client.post("/predictions/selection", data={**form, "ids": ended_id})
    assert (response.status_code, response.headers["Location"]) == (303, "/predictions?sessions=1")
    assert "1 live session deleted." in (await app.client.get("/predictions?sessions=1")).text
    page = await RunHistory(app.database).page(tenant, HistoryFilter(), 10)
    assert [entry.id for entry in page.entries] == [recording, open_id]
    assert await app.balance() == before
    assert await app.faults() == ()


async def test_deletion_of_a_run_keeps_its_charge(dot_app: AppFixture) -> None:
    app = dot_app
    token = await signed_in(app)
    one = await run_model(app, "a fox")
    body = {"input": {"prompt": "a mill", **SMALL}}
    graph = (await app.client.post(GRAPH, json=body, headers=app.bearer)).json()
    await app.until((await app.balance())[0], "0.00")
    before = await app.balance()
    confirmation = (await app.client.get(f"/predictions/selection?id={graph['id']}")).text
    assert "Delete this run" in confirmation
    form = {"ids": f"{one['id']},{graph['id']}", "csrf": token}
    wrong = await app.client.post("/predictions/selection", data={**form, "csrf": "x"})
    assert wrong.status_code == 403
    response = await app.client.post("/predictions/selection", data=form)
    assert (response.status_code, response.headers["Location"]) == (303, "/predictions?deleted=2")
    for run in (one, graph):
        assert (await app.client.get(f"/predictions/{run['id']}")).status_code == 404
        assert (await app.client.get(run["output"]["url"])).status_code == 404
    assert await app.exported("export_predictions") == []
    assert await app.balance() == before
    assert await app.faults() == ()
    ledger = (await app.client.get("/api/account/ledger", headers=app.bearer)).text
    assert one["id"] in ledger
    assert "Deleted runs" in (await app.client.get("/account/security")).text


async def test_only_own_ended_root_runs_can_be_deleted(dot_app: AppFixture) -> None:
    app = dot_app
    token = await signed_in(app)
    theirs = await run_model(app, "a fox", app.other)
    body = {"input": {"prompt": "a mill", **SMALL}}
    graph = (await app.client.post(GRAPH, json=body, headers=app.bearer)).json()
    (part,) = await app.database.read(many("lineage_parts", parent_id=graph["id"], limit=1, most_chars=0))
    mine = await run_model(app, "a hen")
    for name, status in ((theirs["id"], 404), (part["id"], 409), ("pred_none", 404)):
        form = {"ids": f"{mine['id']},{name}", "csrf": token}
        assert (await app.client.post("/predictions/selection", data=form)).status_code == status
    assert (await app.client.get(f"/predictions/{mine['id']}")).status_code == 200
    read = app.database.read
    assert (await read(many("prediction_by_id", id=theirs["id"])))[0]["state"] == "succeeded"
    with pytest.raises(errors.NotFound):
        await app.database.write(deletion.delete(theirs["id"], Tenant(app.account.id)))


async def test_run_page_without_scripts_refreshes_until_the_end(app: AppFixture) -> None:
    await signed_in(app)
    body = {"model": "ra2", "input": {"prompt": "SLOW", **SMALL}, "wait": 0}
    run = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
    page = (await app.client.get(f"/predictions/{run['id']}")).text
    assert '<noscript><meta http-equiv="refresh"' in page
    assert '<span class="blank" aria-hidden="true">image</span>' in page
    await app.client.delete(f"/api/containers/predictions/{run['id']}", headers=app.bearer)
    await app.predictions.wait(await app.predictions.get_any(run["id"]), 60)
    assert 'http-equiv="refresh"' not in (await app.client.get(f"/predictions/{run['id']}")).text


async def test_selection_of_two_names_what_differs(app: AppFixture) -> None:
    await signed_in(app)
    first, second = await run_model(app, "a fox"), await run_model(app, "a hen")
    theirs = await run_model(app, "a zeppelin", app.other)
    page = (
        await app.client.get(
            "/predictions/selection", params={"id": [first["id"], second["id"], theirs["id"]]}
        )
    ).text
    assert "Two runs side by side" in page
    assert "a zeppelin" not in page
    assert re.search(r"prompt <span class=\"note\">differs", page)
    assert not re.search(r"width <span class=\"note\">differs", page)
    many_ids = {"id": [f"pred_{number}" for number in range(60)]}
    assert (await app.client.get("/predictions/selection", params=many_ids)).status_code == 400


async def test_an_output_fills_the_form_of_the_next_model(app: AppFixture) -> None:
    await signed_in(app)
    run = await run_model(app, "a fox")
    page = (await app.client.get(f"/predictions/{run['id']}")).text
    path = f"/catalog/bg-remover?from={run['id']}&amp;as=image"
    assert path in page
    form = (await app.client.get(path.replace("&amp;", "&"))).text
    assert run["output"]["url"] in form
    assert 'data-label="a fox"' in form
    theirs = await run_model(app, "a zeppelin", app.other)
    assert (await app.client.get(f"/catalog/bg-remover?from={theirs['id']}&as=image")).status_code == 404
    fields = (await app.client.get("/catalog/bg-remover")).text
    assert fields.count("data-url=") == 2, "of the image, and of the mask"
    assert "a zeppelin" not in fields


async def test_inputs_and_recent_files_have_names_in_words(dot_app: AppFixture) -> None:
    app = dot_app
    await signed_in(app)
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    run = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
    page = (await app.client.get(f"/predictions/{run['id']}")).text
    assert "<dt>enable safety checker</dt><dd>yes</dd>" in page
    run = await run_model(app, "a hen")
    assert "<dt>negative prompt</dt>" not in (await app.client.get(f"/predictions/{run['id']}")).text, "empty"
    body = {"model": "bg-remover", "input": {"image": run["output"]["url"]}}
    assert (await app.client.post(RUN, json=body, headers=app.bearer)).status_code == 200
    fields = (await app.client.get("/catalog/bg-remover")).text
    assert f'title="{app.server.catalog["bg-remover"].title}"' in fields


async def test_models_with_the_ability_of_the_source_are_offered_last(app: AppFixture) -> None:
    await signed_in(app)
    image = await run_model(app, "a fox")
    body = {"model": "bg-remover", "input": {"image": image["output"]["url"]}}
    cutout = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
    for run, is_first in ((image, True), (cutout, False)):
        page = (await app.client.get(f"/predictions/{run['id']}")).text
        models = re.findall(r'href="/catalog/([^"?]+)\?from=[^"]+&amp;as=', page)
        assert (models[0] in {"bg-remover", "remove-background"}) is is_first


async def test_vary_runs_the_same_inputs_with_a_new_seed(app: AppFixture) -> None:
    token = await signed_in(app)
    run = await run_model(app, "a fox")
    path = f"/predictions/{run['id']}/vary"
    assert (await app.client.post(path, data={"csrf": "x"})).status_code == 403
    response = await app.client.post(path, data={"csrf": token})
    read = app.predictions.get_any
    first, second = await read(run["id"]), await read(response.headers["Location"].rpartition("/")[2])
    assert first.task.inputs["seed"] != second.task.inputs["seed"]
    assert {**second.inputs, "seed": None} == {**first.inputs, "seed": None}


async def test_days_and_filters_of_the_page(app: AppFixture) -> None:
    await signed_in(app)
    run = await run_model(app, "a fox")
    page = (await app.client.get("/predictions", params={"from": "2020-01-01", "q": "fox"})).text
    assert run["id"] in page
    assert ">Today<" in page
    for query in ({"to": "2020-01-01"}, {"q": "hen"}, {"status": "failed"}, {"kind": "video"}):
        assert "No runs match" in (await app.client.get("/predictions", params=query)).text
    odd = {"from": "9999-99-99", "to": "x", "kind": "x", "status": "x", "deleted": "x", "view": "x"}
    assert run["id"] in (await app.client.get("/predictions", params=odd)).text
    assert (await app.client.get("/predictions", params={"cursor": "x"})).status_code == 400
