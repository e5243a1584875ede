"""The operator's own models: files in the folder are loaded, reloaded and removed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sixfold.cli import main
from sixfold.clients import bubblewrap
from sixfold.core.accounts import keys, rights
from sixfold.engines.python_models import watcher
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_pages import signed_in
from tests.mcp.agent import Agent

RUN = "/api/containers/run"
TEMPLATE = "/api/containers/templates/greet"
GREET = '''
from typing import Annotated
import sixfold

@sixfold.model(name="greet")
def greet(name: str, times: Annotated[int, sixfold.Range(1, 3)] = 1) -> str:
    """Say hello."""
    return " ".join([f"{WORD} {name}"] * times)
WORD = "hello"
'''


async def operators_key(app: AppFixture) -> dict[str, str]:
    return bearer((await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key)


ODD = """
import sixfold

@sixfold.model(name="odd")
def odd(value: int) -> dict:
    return {"_outputs": value}
"""


async def test_result_with_arbitrary_keys_is_returned_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "odd.py").write_text(ODD, "utf-8")
    async with running_app(tmp_path, driver="process") as app:
        header = await operators_key(app)
        await app.server.model_watcher.refresh()
        body = {"model": "odd", "input": {"value": 5}}
        answer = await app.client.post(RUN, json=body, headers=header)
        assert (answer.status_code, answer.json()["output"]) == (200, {"_outputs": 5})
        response = await app.client.get("/api/containers/predictions", headers=header)
        assert response.status_code == 200
        assert [each["output"] for each in response.json()["predictions"]] == [{"_outputs": 5}]
        await signed_in(app, app.operator)
        page = await app.client.get(f"/predictions/{answer.json()['id']}")
        assert page.status_code == 200


LARGE = """
import sixfold
from pathlib import Path

@sixfold.model(name="large")
def large(levels: int = 0) -> dict:
    value = 0
    for _ in range(levels):
        value = [value]
    path = Path("sparse.bin")
    with path.open("wb") as file:
        file.truncate(2**40)
    return {"value": value} if levels else path
"""


async def test_results_that_cannot_be_read_or_stored_fail_their_runs(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "large.py").write_text(LARGE, "utf-8")
    deep = "The model returned too much: a result must have at most 100 nesting levels."
    sparse = f"The result could not be stored: the files of a run must have at most {2**34:,} bytes together"
    async with running_app(tmp_path, driver="process") as app:
        header = await operators_key(app)
        await app.server.model_watcher.refresh()
        for inputs, error in (({"levels": 800}, deep), ({}, f"{sparse} (got {2**40:,})")):
            body = {"model": "large", "input": inputs}
            response = (await app.client.post(RUN, json=body, headers=header)).json()
            assert (response["status"], response["error"]) == ("failed", error)
        response = await app.client.get("/api/containers/predictions", headers=header)
        assert len(response.json()["predictions"]) == 2


async def test_model_file_is_loaded_reloaded_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / "greet.py"
    async with running_app(tmp_path, driver="process") as app:
        header = await operators_key(app)
        path.write_text(GREET, "utf-8")
        await app.server.model_watcher.refresh()
        document = (await app.client.get("/api/containers/templates/greet", headers=header)).json()
        assert [each["name"] for each in document["schema"]["inputs"]] == ["name", "times"]
        assert (document["schema"]["outputKind"], document["version"]) == ("text", 1)
        body = {"model": "greet", "input": {"name": "ada", "times": 2}}
        response = (await app.client.post(RUN, json=body, headers=header)).json()
        assert (response["status"], response["output"]) == ("succeeded", "hello ada hello ada")
        assert response["hardware"] == "gpu-24gb-b"
        assert response["engine"] == "greet@1"
        page = (await app.client.get(f"/predictions/{response['id']}", headers=header)).text
        assert "greet/acct_" not in page
        wrong = {"model": "greet", "input": {"name": "ada", "times": 9}}
        assert (await app.client.post(RUN, json=wrong, headers=header)).status_code == 400
        walk = await app.client.post("/api/containers/greet/sessions", json={}, headers=header)
        assert (walk.status_code, walk.json()["error"]) == (
            400,
            "greet does not support sessions: create a prediction instead",
        )
        walk = await app.client.post("/api/containers/greet/sessions", json={}, headers=app.bearer)
        assert walk.status_code == 404
        service = {"service": "greet", "name": "ben"}
        served = await app.client.post("/api/service", json=service, headers=header)
        assert (served.json()["output"], served.json()["engine"]) == ("hello ben", "greet@1")
        assert served.headers["X-Sixfold-Engine"] == "greet@1"
        assert (await app.client.post(RUN, json=body, headers=app.bearer)).status_code == 404
        path.write_text(GREET.replace('"hello"', '"good day"'), "utf-8")
        await app.server.model_watcher.refresh()
        response = (await app.client.post(RUN, json=body, headers=header)).json()
        assert response["output"] == "good day ada good day ada"
        path.write_text("def broken(:\n", "utf-8")
        await app.server.model_watcher.refresh()
        assert app.server.model_watcher.faults == {"greet.py": "line 1: invalid syntax"}
        beside = folder / "greet.py.error"
        assert beside.read_text("utf-8") == "line 1: invalid syntax\n"
        path.write_text(GREET.replace('"hello"', "1 / 0"), "utf-8")
        await app.server.model_watcher.refresh()
        assert beside.read_text("utf-8") == "line 9: ZeroDivisionError: division by zero\n"
        path.unlink()
        await app.server.model_watcher.refresh()
        assert app.server.model_watcher.faults == {}
        assert not beside.exists()
        assert (await app.client.post(RUN, json=body, headers=header)).status_code == 404


async def test_lasting_error_of_the_models_folder_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readable = watcher._stamps

    def unreadable(folder: Path) -> dict[Path, tuple[int, ...]]:
        raise PermissionError(13, "Permission denied", str(folder))

    async with running_app(tmp_path) as app:
        for stamps in (unreadable, unreadable, readable, unreadable, unreadable):
            monkeypatch.setattr(watcher, "_stamps", stamps)
            await app.server.model_watcher.check()
    messages = [record.message for record in caplog.records if record.name == "sixfold.models"]
    assert messages == ["the models folder could not be read"] * 2


async def test_dropped_model_file_gets_price_queue_form_and_tool(tmp_path: Path) -> None:
    assert len(GREET.strip().splitlines()) <= 10
    folder = tmp_path / "models"
    folder.mkdir()
    async with running_app(tmp_path, driver="process") as app:
        header = await operators_key(app)
        watching = asyncio.create_task(app.server.model_watcher.run())
        try:
            await asyncio.to_thread((folder / "greet.py").write_text, GREET, "utf-8")
            async with asyncio.timeout(120):
                status = 404
                while status == 404:
                    status = (await app.client.get(TEMPLATE, headers=header)).status_code
                    await asyncio.sleep(0.05)
        finally:
            watching.cancel()
        body = {"input": {"name": "ada", "times": 3}}
        quote = (await app.client.post("/api/containers/greet/quote", json=body, headers=header)).json()
        assert float(quote["price_usd"]) > 0
        joined = await app.client.post("/api/containers/greet/queue/join", json=body, headers=header)
        assert joined.status_code == 202
        events = (await app.client.get(joined.json()["events_url"], headers=header)).text
        assert "hello ada hello ada hello ada" in events
        await signed_in(app, app.operator)
        page = (await app.client.get("/catalog/greet")).text
        assert re.search(r'<input[^>]*name="times"[^>]*max="3"', page), page
        agent = Agent(app, header["Authorization"].removeprefix("Bearer "))
        assert "greet" in {each["model"] for each in (await agent.call("models"))["models"]}
        ran = await agent.call("run", model="greet", input={"name": "ben"})
        assert ran["status"] == "succeeded"
        assert "hello ben" in str(ran)


PEEK = """
from pathlib import Path
import sixfold

@sixfold.model
def peek(path: str) -> str:
    return "seen" if Path(path).exists() else "nothing"
"""


async def test_models_outside_the_added_list_run_in_a_sandbox(tmp_path: Path) -> None:
    if fault := bubblewrap.fault():
        pytest.skip(fault)
    folder, source = tmp_path / "models", tmp_path / "peek.py"
    folder.mkdir()
    source.write_text(PEEK, "utf-8")
    (folder / "peek.py").write_text(PEEK, "utf-8")
    secret = tmp_path / "server.key"
    async with running_app(tmp_path, driver="process") as app:
        header = await operators_key(app)

        async def seen() -> str:
            await app.server.model_watcher.refresh()
            body = {"model": "peek", "input": {"path": str(secret)}}
            document = (await app.client.post(RUN, json=body, headers=header)).json()
            assert document["status"] == "succeeded", document
            return document["output"]

        assert secret.exists()
        assert await seen() == "nothing"
        requests = ["model", "add", str(source), "--data-dir", str(tmp_path), "--json"]
        assert await asyncio.to_thread(main.main, requests) == 0
        assert await seen() == "seen"


async def test_public_server_loads_only_added_model_files(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "greet.py").write_text(GREET, "utf-8")
    async with running_app(tmp_path, public_url="https://example.com") as app:
        await app.server.model_watcher.refresh()
        assert "sixfold model add" in app.server.model_watcher.faults["greet.py"]
        source = tmp_path / "source.py"
        source.write_text(GREET, "utf-8")
        requests = [
            "model",
            "add",
            str(source),
            "--data-dir",
            str(tmp_path),
            "--hardware",
            "gpu-16gb-a",
            "--json",
        ]
        assert await asyncio.to_thread(main.main, requests) == 0
        await app.server.model_watcher.refresh()
        assert app.server.model_watcher.faults == {}
        own = await app.predictions.custom_models.find("greet", app.operator.id)
        assert own.model.hardware == "gpu-16gb-a"
        arguments = ["model", "remove", "greet", "--data-dir", str(tmp_path)]
        assert await asyncio.to_thread(main.main, arguments) == 0
        await app.server.model_watcher.refresh()
        assert await app.predictions.custom_models.page(app.operator.id) == ((), None)
