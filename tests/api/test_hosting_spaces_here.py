"""Spaces that run on this machine: sandboxed folders, and rejected ones."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.clients import bubblewrap
from sixfold.core.accounts import keys, rights
from tests.api.app_fixture import AppFixture, bearer, running_app

IMPORT = "/api/containers/spaces/import"
RUN = "/api/containers/run"
SPACE = Path(__file__).parents[1] / "fakes" / "space"
FOLDER_NAME = "shouter-0123456789abcdef"


def import_folder(folder: Path, name: str = FOLDER_NAME) -> Path:
    target = folder / "spaces" / name
    shutil.copytree(SPACE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


async def operator(app: AppFixture) -> dict[str, str]:
    return bearer((await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key)


async def post(app: AppFixture, path: str, body: Any, header: dict[str, str]) -> httpx.Response:
    return await app.client.post(path, json=body, headers=header)


async def output_text(app: AppFixture, words: str, header: dict[str, str]) -> str:
    body = {"model": "local-shouter", "input": {"words": words}}
    document = (await post(app, RUN, body, header)).json()
    assert document["status"] == "succeeded", document
    return (await app.client.get(document["output"]["url"])).text


@pytest.fixture
def sandbox() -> None:
    if fault := bubblewrap.fault():
        pytest.skip(fault)


async def test_space_folder_runs_in_the_sandbox(tmp_path: Path, sandbox: None) -> None:
    import_folder(tmp_path)
    async with running_app(tmp_path, driver="process", container_socket=str(tmp_path / "none")) as app:
        header = await operator(app)
        brought = await post(app, IMPORT, {"folder": FOLDER_NAME, "hardware": "gpu-16gb-a"}, header)
        body = brought.json()
        assert brought.status_code == 201, body
        assert (body["name"], body["hardware"], body["schema"]["runtime"]) == (
            "local-shouter",
            "gpu-16gb-a",
            "webui-runtime",
        )
        assert [(each["name"], each["type"]) for each in body["schema"]["inputs"]] == [("words", "string")]
        assert (body["schema"]["apiName"], body["schema"]["outputKind"]) == ("shout", "file")
        assert await output_text(app, "a fox", header) == "A FOX"
        assert await output_text(app, f"read {tmp_path / 'server.key'}", header) == "FileNotFoundError"
        assert await output_text(app, "read /etc/passwd", header) == "FileNotFoundError"
        with socket.create_server(("127.0.0.1", 0)) as near:
            assert (
                await output_text(app, f"connect {near.getsockname()[1]}", header) == "ConnectionRefusedError"
            )
        died = {"model": "local-shouter", "input": {"words": "die"}}
        lost = (await post(app, RUN, died, header)).json()
        assert (lost["status"], lost["attempt"], lost["cost"]) == ("failed", 3, "0.00")
        assert "the space exited with status 9" in lost["error"]
        assert await output_text(app, "again", header) == "AGAIN"


async def test_a_space_that_exceeds_the_time_limit_is_replaced(tmp_path: Path, sandbox: None) -> None:
    import_folder(tmp_path)
    changes: dict[str, Any] = {"container_socket": str(tmp_path / "none"), "run_limit_seconds": 3}
    async with running_app(tmp_path, driver="process", **changes) as app:
        header = await operator(app)
        assert (await post(app, IMPORT, {"folder": FOLDER_NAME}, header)).status_code == 201
        hung = {"model": "local-shouter", "input": {"words": "hang"}}
        failed = (await post(app, RUN, hung, header)).json()
        assert (failed["error"], failed["cost"]) == ("The run took longer than 3 seconds", "0.00")
        assert await output_text(app, "again", header) == "AGAIN"


async def test_failed_start_returns_status_and_last_log_lines(tmp_path: Path, sandbox: None) -> None:
    (import_folder(tmp_path) / "voice.py").write_text("raise RuntimeError('no voice today')\n", "utf-8")
    async with running_app(tmp_path, container_socket=str(tmp_path / "none")) as app:
        response = await post(app, IMPORT, {"folder": FOLDER_NAME}, await operator(app))
        assert response.status_code == 400
        assert "exited with status 1" in response.json()["error"]
        assert "no voice today" in response.json()["error"]


@pytest.mark.parametrize(("package", "more"), [("gradio", "`sdk: gradio`"), ("no_such_package.part", "")])
async def test_missing_package_of_a_folder_is_named_with_its_remedy(
    tmp_path: Path, sandbox: None, package: str, more: str
) -> None:
    (import_folder(tmp_path) / "app.py").write_text(f"import {package}\n", "utf-8")
    async with running_app(tmp_path, container_socket=str(tmp_path / "none")) as app:
        answer = await post(app, IMPORT, {"folder": FOLDER_NAME}, await operator(app))
        response = answer.json()["error"]
        assert answer.status_code == 400
        assert response.startswith(
            f"local/shouter needs {package.partition('.')[0]}, which is not installed here"
        )
        assert "requirements.txt" in response
        assert more in response


REFUSED = [
    ({"folder": "../shouter"}, 400, "sixfold space import"),
    ({"folder": "other-0123456789abcdef"}, 400, "not found"),
    ({"folder": FOLDER_NAME, "run": "remote"}, 400, "container or process"),
    ({"space": "acme/paint", "run": "process"}, 400, "remote or container"),
    ({"folder": FOLDER_NAME, "run": "container"}, 503, "install Docker or Podman"),
    ({"space": "acme/paint", "run": "container"}, 503, "install Docker or Podman"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), REFUSED)
async def test_invalid_local_space_imports_are_rejected(
    tmp_path: Path, body: dict[str, Any], status: int, sentence: str
) -> None:
    import_folder(tmp_path)
    async with running_app(tmp_path, container_socket=str(tmp_path / "none")) as app:
        response = await post(app, IMPORT, body, await operator(app))
        assert (response.status_code, sentence in response.json()["error"]) == (status, True), response.text


async def test_only_the_operator_runs_spaces_on_this_machine(tmp_path: Path) -> None:
    import_folder(tmp_path)
    async with running_app(tmp_path, container_socket=str(tmp_path / "none")) as app:
        assert (await post(app, IMPORT, {"folder": FOLDER_NAME}, app.bearer)).status_code == 403
        none = await post(app, IMPORT, {"space": "acme/paint", "run": "container"}, app.bearer)
        assert (none.status_code, none.json()["code"]) == (503, "engine_unavailable")
