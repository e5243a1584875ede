"""`GET /api/engines` and the commands that call it agree with what the server uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.cli import main as command_line
from sixfold.cli import server_lock
from sixfold.cli.client import KEY_FILE, write_key
from sixfold.cli.doctor import report
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.fakes.comfyui import Comfy, comfyui
from tests.mcp.loopback import serve

PATH = "/api/engines"


@pytest.fixture
async def comfy() -> AsyncIterator[Comfy]:
    async with comfyui() as current_comfy:
        yield current_comfy


@pytest.fixture
async def app_with_comfyui(tmp_path: Path, comfy: Comfy) -> AsyncIterator[AppFixture]:
    """A server with its real catalog and a detected ComfyUI."""
    async with running_app(
        tmp_path, app_catalog.models_document(), probe=False, comfyui_url=comfy.url
    ) as app:
        yield app


async def operator_key(app: AppFixture, scope: KeyLimits | None = None) -> str:
    return (
        await app.database.write(keys.create(app.operator.id, scope, granted=None if scope else rights.ALL))
    ).api_key


async def engines(app: AppFixture, **query: str) -> dict[str, Any]:
    key = await operator_key(app)
    response = await app.client.get(PATH, headers=bearer(key), params=query)
    assert response.status_code == 200, response.text
    return response.json()


def choices(document: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    return {row["model"]: (row["engine"], row["quality"]) for row in document["models"]}


# -- the route -------------------------------------------------------------------------------------


async def test_report_agrees_with_the_list_of_services(app_with_comfyui: AppFixture) -> None:
    chosen = choices(await engines(app_with_comfyui))
    services = (await app_with_comfyui.client.get("/api/services")).json()["services"]
    assert len(services) > 40
    assert {row["service"]: (row["engine"], row["quality"]) for row in services}.items() <= chosen.items()
    assert chosen["ra1"] == ("comfyui-image", "full")


async def test_report_lists_discovered_servers_and_ready_engines(
    app_with_comfyui: AppFixture, comfy: Comfy
) -> None:
    document = await engines(app_with_comfyui)
    rows = {row["name"]: row for row in document["found"]}
    assert (rows["ComfyUI"]["state"], rows["ComfyUI"]["url"]) == ("found", comfy.url)
    assert rows["Ollama"]["state"] == "absent"
    ready = {row["engine"] for row in document["engines"] if row["ready"]}
    assert {"comfyui-image", "scene-painter"} <= ready
    assert "fal-image" not in ready


async def test_report_requires_an_unrestricted_operator_key(app_with_comfyui: AppFixture) -> None:
    limited = [KeyLimits(read_only=True), KeyLimits(services=("ra1",))]
    refused_keys = [app_with_comfyui.key, *[await operator_key(app_with_comfyui, scope) for scope in limited]]
    for key in refused_keys:
        response = await app_with_comfyui.client.get(PATH, headers=bearer(key))
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    for headers in ({}, bearer("sf_unknown")):
        assert (await app_with_comfyui.client.get(PATH, headers=headers)).status_code == 401


async def test_refresh_must_be_true_or_false(app_with_comfyui: AppFixture) -> None:
    response = await app_with_comfyui.client.get(
        PATH, headers=bearer(await operator_key(app_with_comfyui)), params={"refresh": "now"}
    )
    assert (response.status_code, response.json()["error"]) == (400, "refresh must be true or false")


async def test_refresh_detects_a_server_that_has_just_started(tmp_path: Path, comfy: Comfy) -> None:
    comfy.responses["/system_stats"] = b"starting"
    async with running_app(
        tmp_path, app_catalog.models_document(), probe=False, comfyui_url=comfy.url
    ) as app:
        assert choices(await engines(app))["ra1"] == ("scene-painter", "preview")
        del comfy.responses["/system_stats"]
        assert choices(await engines(app))["ra1"] == ("scene-painter", "preview")
        assert choices(await engines(app, refresh="true"))["ra1"] == ("comfyui-image", "full")
        services = (await app.client.get("/api/services")).json()["services"]
        assert next(row for row in services if row["service"] == "ra1")["engine"] == "comfyui-image"


# -- the commands ----------------------------------------------------------------------------------


@contextmanager
def hold_lock(folder: Path, url: str) -> Iterator[None]:
    """Lock a data folder as a server that listens at `url` does."""
    with server_lock.hold(folder) as lock:
        lock.write_url(url)
        yield


class ThreadedCommands:
    """Runs commands on the folder of a server in this process, in a thread."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = await asyncio.to_thread(command_line.main, [*words, "--data-dir", str(self._folder)])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    async def json(self, *words: str) -> Any:
        status, out, err = await self(*words, "--json")
        assert status == 0, err
        return json.loads(out)


@pytest.fixture
def commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> ThreadedCommands:
    monkeypatch.setenv("SIXFOLD_PROBE", "0")
    monkeypatch.delenv("SIXFOLD_API_KEY", raising=False)
    # The probe must not time out on a busy machine.
    monkeypatch.setattr(report, "SERVER_SECONDS", 60)
    return ThreadedCommands(tmp_path, capsys)


async def test_doctor_agrees_with_server_while_comfyui_is_silent(
    tmp_path: Path,
    app_with_comfyui: AppFixture,
    comfy: Comfy,
    commands: ThreadedCommands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIXFOLD_COMFYUI_URL", comfy.url)
    write_key(tmp_path / KEY_FILE, await operator_key(app_with_comfyui))
    # ComfyUI does not respond while it loads a large model.
    comfy.silent.update({"/system_stats", "/object_info"})
    async with serve(app_with_comfyui.asgi) as url:
        with hold_lock(tmp_path, url):
            document = await commands.json("doctor")
            engines = await commands.json("engines", "list")
            _, text, _ = await commands("doctor")
    assert (document["source"], document["note"], engines["source"]) == ("server", "", "server")
    services = (await app_with_comfyui.client.get("/api/services")).json()["services"]
    message = {row["service"]: (row["engine"], row["quality"]) for row in services}
    assert message["ra1"] == ("comfyui-image", "full")
    assert message.items() <= choices(document).items()
    assert {row["engine"] for row in engines["engines"] if row["ready"]} >= {"comfyui-image"}
    assert next(row for row in document["found"] if row["name"] == "ComfyUI")["state"] == "found"
    assert f"server    {url}; this is its report" in text
    assert "comfyui-image (full)" in text


async def test_doctor_names_a_silent_server_and_probes_itself(
    tmp_path: Path, commands: ThreadedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SERVER_SECONDS", 0.2)

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    write_key(tmp_path / KEY_FILE, "sf_any")
    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with hold_lock(tmp_path, url):
            status, out, err = await commands("doctor")
            document = await commands.json("engines", "list")
    sentence = f"The server at {url} did not respond within 0.2 s; showing what this command found itself"
    assert (status, err) == (0, f"sixfold: {sentence}\n")
    assert f"{url}; it gave no report" in out
    assert "scene-painter (preview)" in out
    assert (document["source"], document["note"]) == ("probe", sentence)


async def test_doctor_reports_an_invalid_table_once(
    tmp_path: Path, app_with_comfyui: AppFixture, commands: ThreadedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "sixfold.toml").write_text("[gateway]\nretries = -1\n")
    monkeypatch.setenv("SIXFOLD_CONFIG", str(file))
    write_key(tmp_path / KEY_FILE, await operator_key(app_with_comfyui))
    async with serve(app_with_comfyui.asgi) as url:
        with hold_lock(tmp_path, url):
            status, _, err = await commands("doctor")
    assert (status, err.count("[gateway] retries")) == (1, 1)


@pytest.mark.parametrize("stored", ["", "another"])
async def test_doctor_asks_for_an_operator_key(
    tmp_path: Path, app_with_comfyui: AppFixture, commands: ThreadedCommands, stored: str
) -> None:
    if stored:
        write_key(tmp_path / KEY_FILE, app_with_comfyui.key)
    async with serve(app_with_comfyui.asgi) as url:
        with hold_lock(tmp_path, url):
            document = await commands.json("doctor")
    assert document["source"] == "probe"
    assert document["note"].startswith(
        f"The server at {url} requires an operator's key: set SIXFOLD_API_KEY; "
    )


async def test_user_key_in_environment_does_not_hide_the_operator_key(
    tmp_path: Path, app_with_comfyui: AppFixture, commands: ThreadedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIXFOLD_API_KEY", app_with_comfyui.key)
    write_key(tmp_path / KEY_FILE, await operator_key(app_with_comfyui))
    async with serve(app_with_comfyui.asgi) as url:
        with hold_lock(tmp_path, url):
            assert (await commands.json("doctor"))["source"] == "server"


async def test_an_older_server_without_the_route_is_named(tmp_path: Path, commands: ThreadedCommands) -> None:
    async def older(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    write_key(tmp_path / KEY_FILE, "sf_any")
    async with serve(older) as url:
        with hold_lock(tmp_path, url):
            document = await commands.json("doctor")
    assert document["note"].startswith(
        f"The server at {url} returned 404 for GET /api/engines: it may be older"
    )
    assert document["source"] == "probe"
