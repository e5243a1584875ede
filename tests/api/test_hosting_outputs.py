"""Imported spaces with several outputs: every view of a prediction shows all of them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.cli import run as command
from sixfold.cli.client import ServerClient
from sixfold.clients.gradio import server
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_hosting_spaces import IMPORT, RUN, VERSIONS, post
from tests.api.test_pages import signed_in
from tests.fakes.gradio import PICTURE, GradioServer, gradio

MODEL = "acme-paint"
TEXT = "A fox, <b>red</b>, in snow."
SCORES = {"label": "fox", "confidences": [{"label": "fox", "confidence": 0.9}]}


@asynccontextmanager
async def app_with_space(folder: Path, version: str = "6", *outputs: Any) -> AsyncIterator[AppFixture]:
    """An app with a space that returns some outputs; by default of every kind."""
    async with gradio(version) as space, running_app(folder, space_endpoint=space.url) as app:
        space.give(*(outputs or several(space)))
        response = await post(app, IMPORT, {"space": "acme/paint"})
        assert response.status_code == 201, response.text
        yield app


def several(space: GradioServer) -> list[tuple[str, str, Any]]:
    gallery = [{"image": space.image(), "caption": None}, {"image": space.image(), "caption": "two"}]
    return [
        ("textbox", "What is seen", TEXT),
        ("image", "Result", space.image()),
        ("state", "", None),
        ("number", "Seed used", 7),
        ("image", "Depth", space.image()),
        ("gallery", "Steps", gallery),
        ("label", "", SCORES),
        ("textbox", "Depth", {"__type__": "update", "value": "far", "visible": True}),
        ("image", "Mask", None),
    ]


async def run_space(app: AppFixture) -> dict[str, Any]:
    body: dict[str, Any] = (
        await post(app, RUN, {"model": MODEL, "input": {"prompt": "a fox"}, "wait": 60})
    ).json()
    assert body["status"] == "succeeded", body
    return body


def size_of(media: dict[str, Any]) -> tuple[str, int, int]:
    return media["content_type"], media["width"], media["height"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_run_returns_first_file_and_other_outputs_by_name(tmp_path: Path, version: str) -> None:
    async with app_with_space(tmp_path, version) as app:
        result = await run_space(app)
        others = result["outputs"]
        assert set(result["output"]) == {"url", "content_type", "width", "height"}
        assert list(others) == ["what_is_seen", "seed_used", "depth", "steps", "output_6", "depth_7", "mask"]
        assert (others["what_is_seen"], others["seed_used"], others["depth_7"]) == (TEXT, 7, "far")
        assert (others["output_6"], others["mask"]) == (SCORES, None)
        files = [result["output"], others["depth"], *others["steps"]]
        assert len({file["url"] for file in files}) == 4
        for file in files:
            assert size_of(file) == ("image/webp", 96, 64) or size_of(file) == ("image/png", 96, 64)
            with Image.open(io.BytesIO((await app.client.get(file["url"])).content)) as image:
                assert image.size == (96, 64)
        second_response = await app.client.get(
            f"/api/containers/predictions/{result['id']}", headers=app.bearer
        )
        assert second_response.json()["outputs"] == others


async def test_files_of_a_run_have_a_limit_in_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app_with_space(tmp_path) as app:
        # The space returns four files of this size.
        monkeypatch.setattr(server, "MAX_RUN_BYTES", 3 * len(PICTURE))
        body = {"model": MODEL, "input": {"prompt": "an owl"}, "wait": 60}
        result = (await post(app, RUN, body)).json()
    assert result["status"] == "failed"
    assert "returned files that are too large: one may have 512 MiB" in result["error"]


async def test_single_output_has_no_field_outputs(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "6", ("textbox", "Answer", "yes")) as app:
        result = await run_space(app)
        assert result["output"] == "yes"
        assert "outputs" not in result


async def test_text_outputs_are_all_returned(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "6", ("textbox", "Answer", "yes"), ("textbox", "Why", "so")) as app:
        result = await run_space(app)
        assert (result["output"], result["outputs"]) == ("yes", {"why": "so"})


async def test_first_available_file_is_the_output(tmp_path: Path) -> None:
    async with gradio("6") as space, running_app(tmp_path, space_endpoint=space.url) as app:
        space.give(("image", "Sketch", None), ("image", "Final", space.image()))
        await post(app, IMPORT, {"space": "acme/paint"})
        result = await run_space(app)
        assert result["output"]["width"] == 96
        assert result["outputs"] == {"sketch": None}


async def test_service_api_returns_all_outputs(tmp_path: Path) -> None:
    async with app_with_space(tmp_path) as app:
        answer = (await post(app, "/api/service", {"service": MODEL, "prompt": "a fox"})).json()
        assert answer["image_url"] == answer["output"]["url"]
        assert answer["images"] == [answer["output"]["url"]]
        assert (answer["outputs"]["what_is_seen"], len(answer["outputs"]["steps"])) == (TEXT, 2)


async def test_replicate_api_returns_first_output_and_the_others(tmp_path: Path) -> None:
    async with app_with_space(tmp_path) as app:
        result = await run_space(app)
        body = (await app.client.get(f"/replicate/v1/predictions/{result['id']}", headers=app.bearer)).json()
        assert body["output"] == result["output"]["url"]
        assert body["outputs"]["depth"] == result["outputs"]["depth"]["url"]
        assert body["outputs"]["what_is_seen"] == TEXT


async def test_mcp_tool_returns_all_outputs(tmp_path: Path) -> None:
    async with app_with_space(tmp_path) as app:
        arguments = {"model": MODEL, "input": {"prompt": "a fox"}}
        call = {"method": "tools/call", "params": {"name": "run", "arguments": arguments}}
        response = await post(app, "/mcp", {"jsonrpc": "2.0", "id": 1, **call})
        result = response.json()["result"]
        output = result["structuredContent"]
        assert [size_of(file) for file in output["output"]] == [size_of(output["outputs"]["depth"])]
        assert (output["outputs"]["what_is_seen"], output["outputs"]["seed_used"]) == (TEXT, 7)
        assert output["data"] == {}
        assert [each["type"] for each in result["content"]].count("resource_link") == 4


async def test_the_page_shows_all_outputs(tmp_path: Path) -> None:
    async with app_with_space(tmp_path) as app:
        result = await run_space(app)
        await signed_in(app)
        page = (await app.client.get(f"/predictions/{result['id']}")).text
        assert "A fox, &lt;b&gt;red&lt;/b&gt;, in snow." in page
        assert "<figcaption>what is seen</figcaption>" in page
        for file in (result["output"], result["outputs"]["depth"], *result["outputs"]["steps"]):
            path = file["url"].removeprefix(app.settings.base_url)
            assert re.search(rf' src="{re.escape(path)}(\?w=\d+)?"', page)
        assert "_outputs" not in page


async def test_cli_saves_every_file_and_prints_other_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fetched(ServerClient):
        def download(self, url: str, target: Path) -> int:
            return target.write_bytes(url.encode())

    async with app_with_space(tmp_path / "data") as app:
        result = await run_space(app)
    folder = tmp_path / "kept"
    folder.mkdir()
    saved = command.save(Fetched("http://127.0.0.1:9", None), result, f"{folder}/")
    urls = [result["output"]["url"], result["outputs"]["depth"]["url"]]
    urls += [file["url"] for file in result["outputs"]["steps"]]
    assert [path.read_text() for path, _ in saved] == urls
    command.print_result(result, [path for path, _ in saved], as_json=False)
    printed = capsys.readouterr().out
    values = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    assert (values["what_is_seen"], values["seed_used"]) == (TEXT, 7)
    assert "steps" not in values
