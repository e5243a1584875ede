"""Work and memory of requests for shares, which anyone with a link can send."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import loaded_objects, single_thread
from sixfold.core.predictions import queries, refunds
from sixfold.core.shares.text_inputs import text_inputs
from sixfold.ui.predictions import data_views
from sixfold.ui.shares import cards
from tests.api.app_fixture import AppFixture
from tests.api.gateway import running_gateway
from tests.api.test_chat_pages import ChatUser
from tests.api.test_shares import anonymous_visitor, list_shares, share

SERIES = [12, 15, 21, 18, 13, 17, 24, 20, 15, 19, 26, 23, 17, 21, 29, 25]


async def shared_forecast(app: AppFixture) -> str:
    """Return the link of a shared run whose result is data."""
    body = {"model": "forecast", "input": {"series": SERIES, "horizon": 4}}
    run = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    return (await share(app, "run", run["id"], include_inputs=True))["url"]


@pytest.mark.parametrize("path", ["", "/card.jpg"])
async def test_the_data_of_a_large_run_is_prepared_in_a_thread(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    link, threads, reserved = await shared_forecast(app), list[str](), list[int]()
    draw, reserve = data_views.draw, loaded_objects.reserve

    def recording_draw(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return draw(*arguments)

    async def recording_reserve(size: int, copies: int, key: str = "") -> None:
        reserved.append(size)
        await reserve(size, copies, key)

    monkeypatch.setattr(data_views, "draw", recording_draw)
    monkeypatch.setattr(loaded_objects, "reserve", recording_reserve)
    monkeypatch.setattr(single_thread, "LOOP_BYTES", 0)
    async with anonymous_visitor(app) as visitor:
        response = await visitor.get(link + path)
    assert response.status_code == 200, response.text
    assert threads
    assert all(name.startswith("shares") for name in threads)
    # The size is known before the row is read.
    assert reserved
    assert reserved[0] > len(str(SERIES))


async def test_a_large_run_is_read_within_a_limit_on_memory(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared_forecast(app)
    reserved = list[int]()

    async def recording_reserve(size: int, _copies: int, _key: str) -> None:
        reserved.append(size)

    monkeypatch.setattr(loaded_objects, "reserve", recording_reserve)
    run_id = (await list_shares(app))[0]["object_id"]
    path = f"/replicate/v1/predictions/{run_id}"
    assert (await app.client.get(path, headers=app.bearer)).status_code == 200
    assert reserved == []
    monkeypatch.setattr(queries, "_LARGE_BYTES", 0)
    assert (await app.client.get(path, headers=app.bearer)).status_code == 200
    assert [size > len(str(SERIES)) for size in reserved] == [True]


async def test_the_picture_of_a_shared_run_is_built_once(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, built, card_of = any_database_app, list[str](), cards.card_of

    async def recording_card_of(*arguments: Any) -> Any:
        built.append(arguments[1])
        return await card_of(*arguments)

    monkeypatch.setattr(cards, "card_of", recording_card_of)
    link = await shared_forecast(app)
    async with anonymous_visitor(app) as visitor:
        images = [(await visitor.get(f"{link}/card.jpg")).content for _ in range(3)]
        assert (len(set(images)), built) == (1, ["run"])
        run_id = (await list_shares(app))[0]["object_id"]
        await app.database.write(refunds.refund(run_id, "test"))
        assert (await visitor.get(f"{link}/card.jpg")).status_code == 404


@pytest.mark.parametrize(
    ("value", "is_shown"),
    [
        (["a", "b"], True),
        ([["a"], {"b": {"c": "d"}}], True),
        ([["a"], {"b": {"c": "see /media/x.png"}}], False),
        ({"/uploads/x": 1}, False),
        ("data:text/plain,x", False),
        ([1, 2.5, None, True], True),
    ],
)
def test_inputs_with_the_address_of_a_file_are_not_shown(
    app: AppFixture, value: object, is_shown: bool
) -> None:
    model = app.server.catalog["forecast"]
    assert ("series" in text_inputs({"series": value}, model)) == is_shown


async def test_few_files_of_a_message_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(tmp_path) as gateway:
        app, person = gateway.app, await ChatUser.of(gateway)
        where = await person.ask_path("say 3 words")
        chat = where.rpartition("/")[2]
        content = [{"type": "input_file", "file_id": f"f{number}"} for number in range(600)]
        item = {"type": "message", "role": "user", "content": content}
        path = f"/v1/conversations/{chat}/items"
        added = await app.client.post(path, json={"items": [item]}, headers=app.bearer)
        assert added.status_code == 200, added.text
        link = (await share(app, "chat", chat, include_inputs=True))["url"]
        read, some = list[int](), app.server.files.some

        async def recording_some(tenant: Tenant, file_ids: Sequence[str]) -> object:
            read.append(len(file_ids))
            return await some(tenant, file_ids)

        monkeypatch.setattr(app.server.files, "some", recording_some)
        async with anonymous_visitor(app) as visitor:
            assert (await visitor.get(link)).status_code == 200
        assert read == [20]
        page = await app.client.get(where)
        assert (page.text.count("/chat-files/"), "580 more" in page.text) == (20, True)
        await person.ask("and now?", where)
        assert "at most 500 files" in str(await person.events(where))
