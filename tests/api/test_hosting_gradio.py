"""Spaces of real Gradio 4, 5 and 6 servers: imported by URL, and run with every kind of input."""

from __future__ import annotations

import asyncio
import io
import shutil
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.clients import bubblewrap
from sixfold.core.predictions.events import LogEvent
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_hosting_spaces import IMPORT, RUN, post
from tests.api.test_hosting_spaces_here import operator
from tests.harness import gradio, image_files

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(240)]
VERSIONS = ("4", "5", "6")


@pytest.fixture(scope="module", params=VERSIONS)
def ports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, int]]:
    """The applications of a version, by their ports."""
    with gradio.running_applications(request.param, tmp_path_factory.mktemp("gradio")) as result:
        yield result


@asynccontextmanager
async def app_with_spaces(
    folder: Path, ports: dict[str, int], *names: str
) -> AsyncIterator[tuple[AppFixture, Any]]:
    """Run an app with imported applications, named `acme-PORT`; yield the last one's template."""
    async with running_app(folder, space_endpoint="http://127.0.0.1:{name}") as app:
        response: Any = None
        for name in names:
            answer = await post(app, IMPORT, {"space": f"acme/{ports[name]}"})
            response = answer.json()
            assert answer.status_code == 201, response
        yield app, response


async def run(app: AppFixture, port: int, **inputs: Any) -> dict[str, Any]:
    """Run a template; return the finished prediction."""
    return (await post(app, RUN, {"model": f"acme-{port}", "input": inputs, "wait": 60})).json()


async def fetch(app: AppFixture, media: dict[str, Any]) -> bytes:
    return (await app.client.get(media["url"])).content


def uri(data: bytes, kind: str) -> str:
    return image_files.data_uri(data, kind)


def gray_image(value: int, width: int = 40, height: int = 20) -> str:
    return uri(image_files.encode(Image.new("RGB", (width, height), (value,) * 3)), "image/png")


def sound(samples: np.ndarray[Any, Any]) -> bytes:
    result = io.BytesIO()
    with wave.open(result, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(samples.astype(np.int16).tobytes())
    return result.getvalue()


def samples(data: bytes) -> list[int]:
    """Return the samples of a WAV file, which also contains a manifest."""
    with wave.open(io.BytesIO(data)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).tolist()


async def test_every_input_type_is_described_and_sent_to_the_space(
    tmp_path: Path, ports: dict[str, int]
) -> None:
    async with app_with_spaces(tmp_path, ports, "painting") as (app, response):
        inputs = {each["name"]: each for each in response["schema"]["inputs"]}
        assert (response["schema"]["apiName"], response["schema"]["outputKind"]) == ("paint", "image")
        assert {name: each["type"] for name, each in inputs.items()} == {
            "words": "string",
            "count": "integer",
            "width": "integer",
            "share": "number",
            "style": "string",
            "mood": "string",
            "flip": "boolean",
            "picture": "image",
        }
        assert [name for name, each in inputs.items() if each["required"]] == ["words"]
        assert (inputs["count"]["default"], inputs["count"]["max"]) == (3, 9)
        assert (inputs["width"]["min"], inputs["width"]["max"], inputs["width"]["default"]) == (32, 256, 64)
        assert (inputs["style"]["choices"], inputs["mood"]["default"]) == (["plain", "bold"], "wild")

        port = ports["painting"]
        values = {"count": 5, "width": 101, "share": 0.25, "style": "bold", "mood": "calm", "flip": True}
        run_result = await run(app, port, words="a fox", picture=gray_image(77), **values)
        assert run_result["status"] == "succeeded", run_result
        # The width is rounded to a step of the slider.
        assert (run_result["output"]["width"], run_result["output"]["height"]) == (
            96,
            64,
        )
        assert run_result["outputs"] == {"seen": 1}
        with Image.open(io.BytesIO(await fetch(app, run_result["output"]))) as result:
            row = np.asarray(result.convert("RGB"))[0, :7, 0].tolist()
        assert row == [5, 5, 25, 1, 1, 1, 77]
        lines = run_result["logs"].splitlines()
        assert "queue position 1 at the space" in lines
        assert [line for line in lines if line in ("mixing", "painting")] == ["mixing", "painting"]
        # Missing inputs have the defaults that the application shows.
        plain = await run(app, port, words="a")
        with Image.open(io.BytesIO(await fetch(app, plain["output"]))) as result:
            row = np.asarray(result.convert("RGB"))[0, :7, 0].tolist()
        assert row == [1, 3, 50, 0, 0, 0, 0]


async def test_failed_space_runs_return_its_error_and_are_free(tmp_path: Path, ports: dict[str, int]) -> None:
    async with app_with_spaces(tmp_path, ports, "painting") as (app, _):
        failed = await run(app, ports["painting"], words="fail")
        assert (failed["status"], failed["cost"]) == ("failed", "0.00")
        assert failed["error"] == "The space failed: There is no such paint"
        broke = await run(app, ports["painting"], words="break")
        assert (broke["status"], "secret" in broke["error"]) == ("failed", False)
        assert await app.balance() == ("5.00", "0.00")
        assert (await run(app, ports["painting"], words="again"))["status"] == "succeeded"


async def test_audio_documents_and_galleries_are_sent_and_returned(
    tmp_path: Path, ports: dict[str, int]
) -> None:
    async with app_with_spaces(tmp_path, ports, "turn", "read", "show") as (app, _):
        rising = np.arange(-4000, 4000)
        turned = await run(app, ports["turn"], sound=uri(sound(rising), "audio/wav"))
        assert turned["status"] == "succeeded", turned
        assert samples(await fetch(app, turned["output"])) == rising[::-1].tolist()
        same = await run(app, ports["turn"], sound=uri(sound(rising), "audio/wav"), backwards=False)
        assert samples(await fetch(app, same["output"])) == rising.tolist()

        inputs = {"paper": uri(b"quiet words", "text/plain"), "pictures": gray_image(9)}
        response = await run(app, ports["read"], **inputs)
        assert response["status"] == "succeeded", response
        assert await fetch(app, response["output"]) == b"QUIET WORDS"
        [turned_image] = response["outputs"].values()
        assert (turned_image["width"], turned_image["height"]) == (20, 40)

        result = await run(app, ports["show"], pictures=gray_image(60, 24, 16), times=3)
        assert result["status"] == "succeeded", result
        assert [(each["width"], each["height"]) for each in result["output"]] == [(24, 16)] * 3


async def test_queue_position_is_reported_and_freed_on_cancel(tmp_path: Path, ports: dict[str, int]) -> None:
    async with app_with_spaces(tmp_path, ports, "wait") as (app, response):
        assert response["schema"]["outputKind"] == "text"
        lines: asyncio.Queue[str] = asyncio.Queue()
        app.server.bus.watchers.append(
            lambda _, event: lines.put_nowait(event.line) if isinstance(event, LogEvent) else None
        )
        urls: list[str] = []
        for words, expected_log in (
            ("hold", "begun: hold"),
            ("b", "queue position 1"),
            ("c", "queue position 2"),
        ):
            body = {"model": f"acme-{ports['wait']}", "input": {"words": words}, "wait": 0}
            urls.append((await post(app, RUN, body)).json()["urls"]["get"])
            async with asyncio.timeout(60):
                while expected_log not in await lines.get():
                    pass
        await app.client.delete(urls[0], headers=app.bearer)
        job = [await finished_prediction(app, url) for url in urls]
        assert [each["status"] for each in job] == ["canceled", "succeeded", "succeeded"]
        assert [each["output"] for each in job[1:]] == ["b", "c"]


async def finished_prediction(app: AppFixture, url: str) -> dict[str, Any]:
    """Wait for the end of a prediction, and return it."""
    prediction = url.rsplit("/", 1)[1]
    with app.server.bus.listen(prediction) as events:
        async with asyncio.timeout(60):
            while True:
                body = (await app.client.get(url, headers=app.bearer)).json()
                if body["completed_at"]:
                    return body
                await events.get()


async def test_folder_with_real_gradio_runs_in_the_sandbox(tmp_path: Path) -> None:
    if fault := bubblewrap.fault():
        pytest.skip(fault)
    home_of = gradio.interpreter("6").parents[1]
    remaining = tmp_path / "spaces" / "painter-0123456789abcdef"
    shutil.copytree(gradio.APPLICATION.parent, remaining, ignore=shutil.ignore_patterns("__pycache__"))
    (remaining / "README.md").write_text("---\nsdk: gradio\nsdk_version: 6.31.0\napp_file: space.py\n---\n")
    (remaining / "requirements.txt").write_text("numpy\n")
    packages = next(home_of.glob("lib/python3*/site-packages"))
    remaining.with_name(f"{remaining.name}.packages").symlink_to(packages)
    async with running_app(tmp_path, driver="process", container_socket=str(tmp_path / "none")) as app:
        header = await operator(app)
        answer = await post_as(app, IMPORT, {"folder": remaining.name}, header)
        assert answer["schema"]["apiName"] == "paint", answer
        inputs = {"words": "a fox", "picture": gray_image(50)}
        prediction = await post_as(app, RUN, {"model": "local-painter", "input": inputs, "wait": 60}, header)
        assert prediction["status"] == "succeeded", prediction
        with Image.open(io.BytesIO(await fetch(app, prediction["output"]))) as result:
            assert np.asarray(result.convert("RGB"))[0, :7, 0].tolist() == [5, 3, 50, 0, 0, 0, 50]


async def post_as(app: AppFixture, path: str, body: Any, header: dict[str, str]) -> dict[str, Any]:
    return (await app.client.post(path, json=body, headers=header)).json()
