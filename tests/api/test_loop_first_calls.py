"""First requests to pages, and bodies with many names, block the event loop for a short time only."""

from __future__ import annotations

from pathlib import Path

from tests import loop_time
from tests.api.app_fixture import AppFixture, running_app

MAX_SECONDS = 0.05


async def test_first_page_of_the_documentation_is_read_in_a_thread(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, loop_time.watched() as loop:
        assert (await app.client.get("/docs")).status_code == 200
    assert loop.longest < MAX_SECONDS


async def test_null_fields_of_a_run_count_as_omitted(app: AppFixture) -> None:
    body = {"model": "ra2", "input": {"prompt": "a", "width": 64, "height": 64}, "wait": None, "files": None}
    response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
    assert (response.status_code, response.json()["status"]) == (200, "succeeded")
