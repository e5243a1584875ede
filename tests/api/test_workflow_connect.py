"""Connecting a ComfyUI on the page of a workflow with missing nodes: tested, stored and used."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_pages import signed_in
from tests.api.test_workflows_remote import SPACES, TINT, png
from tests.fakes.comfyui import comfyui

PAGE = "/workflows/tint"


async def prepare(app: AppFixture) -> str:
    """Import a workflow with a missing node as the operator, and return the CSRF token of the pages."""
    assert app.operator is not None
    token = await signed_in(app, app.operator)
    headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
    response = await app.client.post("/pages/workflows", params={"name": "tint"}, json=TINT, headers=headers)
    assert response.status_code == 201, response.text
    return token


async def test_an_operator_tests_and_connects_a_comfyui(tmp_path: Path) -> None:
    async with comfyui() as comfy, running_app(tmp_path, app_catalog.models_document()) as app:
        token = await prepare(app)
        page = (await app.client.get(PAGE)).text
        assert 'class="node missing" data-node="2"' in page
        assert 'action="/workflows/tint/comfyui#connect"' in page

        async def send(url: str, do: str) -> tuple[int, str]:
            form = {"csrf": token, "url": url, "do": do}
            response = await app.client.post(f"{PAGE}/comfyui", data=form)
            return response.status_code, response.text

        status, text = await send(comfy.url, "test")
        assert status == 200
        assert "has 1 of the missing ones" in text
        for wrong, problem in (("http://127.0.0.1:9", "ComfyUI"), ("ftp://x", "an origin such as")):
            status, text = await send(wrong, "save")
            assert status == 200
            assert problem in text
            assert 'aria-invalid="true"' in text
        assert (await send(comfy.url, "save"))[0] == 303
        page = (await app.client.get(PAGE)).text
        assert "node missing" not in page
        file = {"image": ("mine.png", png(), "image/png")}
        await app.client.post("/upload/image", files=file, headers=app.bearer)
        body = {"workflow": TINT, "name": "mine"}
        slug = (await app.client.post(SPACES, json=body, headers=app.bearer)).json()["slug"]
        run = await app.client.post(f"{SPACES}/{slug}/run", json={"input": {}}, headers=app.bearer)
        assert run.json()["status"] == "succeeded", run.text
        page = (await app.client.get("/admin/models")).text
        results = re.search(r'comfyui/remove".*?name="name" value="([^"]+)"', page)
        assert results is not None
        removal = await app.client.post(
            "/admin/models/comfyui/remove", data={"csrf": token, "name": results[1]}
        )
        assert removal.headers["location"] == "/admin/models"
        # A change that takes longer than the request waits is applied soon after it.
        async with asyncio.timeout(30):
            while "Disconnect" in (await app.client.get("/admin/models")).text:  # noqa: ASYNC110 - by a task
                await asyncio.sleep(0.02)


async def test_only_an_operator_sees_and_uses_the_form(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        token = await signed_in(app)
        headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
        await app.client.post("/pages/workflows", params={"name": "tint"}, json=TINT, headers=headers)
        page = (await app.client.get(PAGE)).text
        assert "Ask the operator of this server" in page
        assert "comfyui-url" not in page
        form = {"csrf": token, "url": "http://127.0.0.1:8188", "do": "save"}
        assert (await app.client.post(f"{PAGE}/comfyui", data=form)).status_code == 404
