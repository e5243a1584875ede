"""Work and memory of requests for shares, which everyone with a link can send."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sixfold.core.concurrency import loaded_objects, single_thread
from sixfold.core.shares.text_inputs import text_inputs
from sixfold.ui.predictions import data_views
from tests.api.app_fixture import AppFixture
from tests.api.test_shares import anonymous_visitor, share

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
