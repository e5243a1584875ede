"""Start and stop of the server: access, shared data folders, signals."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.harness.cases import nightly_after
from tests.unit.cli.conftest import Server, Starter, inside, minimal, program

pytestmark = pytest.mark.slow  # each test starts programs
PUBLIC = ("--public-url", "https://six.example")


def ask(url: str, api_key: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"})  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - our own server
            return response.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def local_key(server: Server) -> str:
    return (server.folder / "local.key").read_text().strip()


def test_second_start_prints_the_path_of_the_key_only(start: Starter, tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    key = local_key(first)
    assert first.stop() == 0
    second = start(tmp_path / "data")
    assert key not in second.banner
    assert str(tmp_path / "data" / "local.key") in second.banner
    assert ask(f"{second.url}/api/account", key) == 200
    assert second.stop() == 0


def test_two_servers_never_share_a_folder(server: Server) -> None:
    result = program(server.folder, "serve", "--port", "0")
    assert (result.status, result.out) == (1, "")
    assert f"process {server.process.pid}" in result.err
    assert server.url in result.err


def test_data_folder_is_unlocked_after_a_kill(start: Starter, tmp_path: Path) -> None:
    start(tmp_path / "data").stop(signal.SIGKILL)
    second_server = start(tmp_path / "data")
    assert second_server.stop() == 0


def test_scratch_of_former_processes_is_deleted(start: Starter, tmp_path: Path) -> None:
    for name in ("scratch-1", "scratch-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    start(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("scratch-*")) == ["scratch-x"]


def test_used_port_fails_with_one_sentence_and_no_account(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    result = program(tmp_path / "other", "serve", "--port", port)
    assert (result.status, result.out) == (1, "")
    assert f"Port {port}" in result.err
    assert "--port 0" in result.err
    assert not (tmp_path / "other" / "local.key").exists()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("host", nightly_after(1, ["0.0.0.0", "::", "192.0.2.1"]))
@pytest.mark.parametrize(
    ("options", "account", "sentence"),
    [
        ((), False, "--public-url"),
        ((), True, "--public-url"),
        (PUBLIC, False, "sixfold account create EMAIL"),
    ],
)
def test_public_server_needs_an_origin_and_an_account(
    tmp_path: Path, host: str, options: tuple[str, ...], account: bool, sentence: str
) -> None:
    if account:
        assert inside(tmp_path, "account", "create", "a@b.c").status == 0
    result = program(tmp_path, "serve", "--host", host, "--port", "0", *options)
    assert result.status == 1
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "local.key").exists()


def test_public_server_with_only_the_local_account_is_refused(start: Starter, tmp_path: Path) -> None:
    start(tmp_path / "data").stop()
    result = program(tmp_path / "data", "serve", "--host", "0.0.0.0", "--port", "0", *PUBLIC)
    assert result.status == 1
    assert "there is only the local account" in result.err


def test_public_server_with_both_creates_no_local_account(start: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    result = json.loads(inside(folder, "account", "create", "a@b.c", "--json").out)
    port = free_port()
    server = start(folder, "--host", "0.0.0.0", "--port", port, *PUBLIC)
    assert "https://six.example" in server.banner
    assert not (folder / "local.key").exists()
    assert "curl" not in server.banner
    assert ask(f"http://127.0.0.1:{port}/api/account", result["api_key"]) == 200
    assert server.stop() == 0


def test_open_imagekit_charges_the_operator(start: Starter, tmp_path: Path) -> None:
    folder, port = tmp_path / "data", free_port()
    assert inside(folder, "account", "create", "a@b.c").status == 0
    environ = {"SIXFOLD_OPEN_IMAGE_SERVICE": "1", "SIXFOLD_PREVIEWS": "allow"}
    server = start(folder, "--host", "0.0.0.0", "--port", port, *PUBLIC, **environ)
    image = f"http://127.0.0.1:{port}/create_image?prompt=boat&width=64&height=64"
    with urllib.request.urlopen(image, timeout=60) as response:
        assert response.headers["Content-Type"] == "image/webp"
    assert server.stop() == 0
    account = json.loads(inside(folder, "account", "show", "local@localhost", "--json").out)
    assert (account["balance_usd"], account["held_usd"]) == ("0.00", "0.00")
    assert not (folder / "local.key").exists()


def test_administration_works_while_the_server_runs(server: Server) -> None:
    result = json.loads(inside(server.folder, "account", "create", "b@b.c", "--credit", "1", "--json").out)
    assert ask(f"{server.url}/api/account", result["api_key"]) == 200
    keys = json.loads(inside(server.folder, "key", "list", "b@b.c", "--json").out)["keys"]
    assert inside(server.folder, "key", "revoke", keys[0]["id"]).status == 0
    assert ask(f"{server.url}/api/account", result["api_key"]) == 401
    assert inside(server.folder, "ledger", "verify").status == 0
    link = json.loads(inside(server.folder, "account", "link", "b@b.c", "--json").out)
    assert link["url"].startswith(f"{server.url}/signin?token=")
    assert inside(server.folder, "organization", "create", "acme", "--owner", "b@b.c").status == 0
    invitation = json.loads(inside(server.folder, "member", "invite", "acme", "--json").out)
    assert invitation["url"].startswith(f"{server.url}/invitation?token=")


def test_a_running_server_keeps_its_schema(server: Server) -> None:
    back = inside(server.folder, "migrate", "--to", "0", "--drop")
    assert back.status == 1
    assert "stop it first" in back.err
    forward = inside(server.folder, "migrate", "--json")
    assert json.loads(forward.out)["before"] == json.loads(forward.out)["after"]


def test_comfyui_port_serves_the_same_api(start: Starter, tmp_path: Path) -> None:
    port = free_port()
    server = start(tmp_path / "data", "--comfyui-port", port)
    assert ask(f"http://127.0.0.1:{port}/api/account", local_key(server)) == 200
    assert server.stop() == 0


def test_routes_of_disabled_apis_return_404(start: Starter, tmp_path: Path) -> None:
    server = start(tmp_path / "data", "--areas", "imagekit")
    assert ask(f"{server.url}/api/containers/predictions", local_key(server)) == 404
    (line,) = [line for line in server.banner.splitlines() if line.startswith("curl ")]
    process = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(process.stdout)["email"] == "local@localhost"
    assert server.stop(signal.SIGINT) == 0


def test_banner_suggests_no_image_without_an_image_engine(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sixfold.toml").write_text('[engines]\norder = ["weights"]\n')
    server = start(tmp_path / "data")
    (line,) = [line for line in server.banner.splitlines() if line.startswith("curl ")]
    assert "Paste this to see the account:" in server.banner
    assert "/api/account" in line
    assert server.stop() == 0


def order(server: Server, model: str) -> http.client.HTTPConnection:
    """Request a run without waiting for its end."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    body = json.dumps({"model": model, "input": {"prompt": "a hill"}, "wait": 60})
    headers = {"Authorization": f"Bearer {local_key(server)}", "Content-Type": "application/json"}
    connection.request("POST", "/api/containers/run", body, headers)
    return connection


HANGING = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra1=hang"}


def wait_for_run(server: Server) -> None:
    while True:
        result = inside(server.folder, "predictions", "--json")
        if any(row["status"] == "running" for row in json.loads(result.out)["predictions"]):
            return


def test_waiting_request_is_answered_202_at_shutdown(start: Starter, tmp_path: Path) -> None:
    server = start(tmp_path / "data", **HANGING, SIXFOLD_DRAIN_SECONDS="1")
    pending_connection = order(server, "ra1")
    wait_for_run(server)
    assert server.stop() == 0
    response = pending_connection.getresponse()
    assert response.status == 202
    prediction = json.loads(response.read())
    pending_connection.close()
    second_server = start(tmp_path / "data")
    result = inside(tmp_path / "data", "predictions", prediction["id"], "--json")
    assert json.loads(result.out)["status"] in {"queued", "starting", "running", "succeeded"}
    assert second_server.stop() == 0


def test_second_signal_stops_the_server_immediately(start: Starter, tmp_path: Path) -> None:
    server = start(tmp_path / "data", **HANGING, SIXFOLD_DRAIN_SECONDS="600")
    pending_connection = order(server, "ra1")
    wait_for_run(server)
    server.process.send_signal(signal.SIGTERM)
    assert pending_connection.getresponse().status == 202
    pending_connection.close()
    assert server.stop(signal.SIGINT) == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"SIXFOLD_PORT": "many"}, "SIXFOLD_PORT must be a whole number"),
        ({"SIXFOLD_AREAS": "media,cooking"}, "areas has an unknown entry 'cooking'"),
        ({"SIXFOLD_CONFIG": "nowhere.toml"}, "configuration file nowhere.toml not found"),
        ({"SIXFOLD_LOG_LEVEL": "loud"}, "SIXFOLD_LOG_LEVEL must be"),
        ({"SIXFOLD_FAILPOINTS": "engine.run.ra1=fail"}, "SIXFOLD_TESTING=1"),
        ({"SIXFOLD_HOST": "no.such.host.invalid", "SIXFOLD_PUBLIC_URL": "https://x.y"}, "account create"),
    ],
)
def test_invalid_setting_prevents_the_start(tmp_path: Path, environ: dict[str, str], sentence: str) -> None:
    result = program(tmp_path / "data", "serve", **environ)
    assert result.status == 1
    assert sentence in result.err
    assert "Traceback" not in result.err


def test_database_of_a_later_version_is_refused_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    inside(folder, "account", "create", "a@b.c")
    with sqlite3.connect(folder / "sixfold.db") as connection:
        connection.execute("PRAGMA user_version=999")
    connection.close()
    for words in (("serve", "--port", "0"), ("account", "show", "a@b.c"), ("migrate",)):
        result = program(folder, *words)
        assert result.status == 1
        assert "upgrade Sixfold" in result.err


def test_environment_of_these_tests_has_no_settings() -> None:
    assert set(minimal(Path())) == {"PATH", "SIXFOLD_DATA_DIR", "SIXFOLD_PROBE", "LANG"}
