"""Installation of weights on the page of engines: a separate process with progress and a log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.ports import InstallView
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_pages import signed_in
from tests.fakes.huggingface import serving
from tests.unit.engines import onnx_model

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
FAMILY, NAME = "matting-u2netp", "u2netp"


async def wait_for_end(app: AppFixture) -> InstallView:
    async with asyncio.timeout(120):
        while True:
            views = await app.server.operator.installs.view()
            view = next(each for each in views if (each.family, each.name) == (FAMILY, NAME))
            if view.state != "running":
                return view
            await asyncio.sleep(0.05)


async def test_unfinished_weights_are_shown_and_removed(tmp_path: Path) -> None:
    folders = [tmp_path / "weights" / FAMILY / f".unfinished-{name}" for name in (NAME, "own")]
    for folder in folders:
        folder.mkdir(parents=True)
    async with running_app(tmp_path) as app:
        csrf = await signed_in(app, app.operator)
        assert (await wait_for_end(app)).state == "failed"
        page = (await app.client.get("/admin/engines")).text
        assert page.count("not finished") == 2
        assert f'aria-label="Continue {NAME}"' in page
        assert 'aria-label="Continue own"' not in page
        for name in (NAME, "own"):
            url = f"/admin/engines/{FAMILY}/{name}/remove"
            assert (await app.client.post(url, data={"csrf": csrf})).status_code == 303
        assert not any(folder.exists() for folder in folders)
        assert (await wait_for_end(app)).state == "absent"


async def test_weights_are_installed_from_the_page_and_removed(tmp_path: Path) -> None:
    row = app_catalog.read_toml("weights.toml")[FAMILY][NAME]
    file = tmp_path / "hub" / row["repository"] / row["file"]
    file.parent.mkdir(parents=True)
    data = tmp_path / "data"
    data.mkdir()
    with serving(tmp_path / "hub") as hub:
        (data / "sixfold.toml").write_text(f'hub_url = "{hub.url}"\n')
        async with running_app(data) as app:
            csrf = await signed_in(app, app.operator)
            url = f"/admin/engines/{FAMILY}/{NAME}"
            response = await app.client.post(f"{url}/install", data={"csrf": csrf})
            assert response.headers["location"] == f"/admin/engines#{FAMILY}.{NAME}"
            failed = await wait_for_end(app)
            assert failed.state == "failed"
            assert failed.log[-1] in (await app.client.get("/admin/engines")).text.replace("&#39;", "'")
            onnx_model.write(file, (8.0, -4.0, -4.0))
            await app.client.post(f"{url}/install", data={"csrf": csrf})
            view = await wait_for_end(app)
            assert (view.state, view.size_bytes) == ("installed", file.stat().st_size), view.log
            log = (data / "installs" / f"{FAMILY}.{NAME}.log").read_text()
            assert f"@ {file.stat().st_size} {file.stat().st_size}" in log
            assert "/remove" in (await app.client.get("/admin/engines")).text
            assert (await app.client.post(f"{url}/remove", data={"csrf": csrf})).status_code == 303
            assert (await wait_for_end(app)).state == "absent"
            for each in (url, f"/admin/engines/{FAMILY}/%00"):
                assert (await app.client.post(f"{each}/stop", data={"csrf": csrf})).status_code == 404
            unknown = await app.client.post(f"/admin/engines/{FAMILY}/x/install", data={"csrf": csrf})
            assert unknown.status_code == 404
            page = await app.database.read(actions.page(9, None, "engines."))
            done = [each.action for each in page.actions]
            assert done == ["engine.remove", "engine.install", "engine.install"]
