"""The whole server: an image at once, and nothing lost when it is killed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.e2e.servers import Server, serving
from tests.harness.cases import nightly_after
from tests.harness.waiting import wait_until

PROMPT = "a lighthouse on a cliff at sunset"


async def _balance(server: Server) -> dict[str, str]:
    status, text = await server.command("account", "show", "local@localhost", "--json")
    assert status == 0, text
    return json.loads(text)


async def test_printed_command_returns_an_image_for_four_cents(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        (line,) = [line for line in server.banner.splitlines() if line.strip().startswith("curl ")]
        result = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", line], capture_output=True, check=True
        )
        answer = json.loads(result.stdout)
        assert answer["cost"] == "0.04"
        image = await server.call("GET", answer["image_url"].partition(str(server.port))[2])
        decoded = cv2.imdecode(np.frombuffer(image.body, np.uint8), cv2.IMREAD_COLOR)
        assert decoded is not None
        assert decoded.shape == (1024, 1024, 3)
        assert await _balance(server) == {
            **await _balance(server),
            "email": "local@localhost",
            "balance_usd": "9.96",
            "held_usd": "0.00",
        }


async def test_first_key_is_stored_privately_and_shown_once(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        assert f"{server.key}  shown this once" in server.banner
        assert str(tmp_path / "data" / "local.key") in server.banner
        assert (tmp_path / "data" / "local.key").stat().st_mode & 0o777 == 0o600
        assert await server.terminate() == 0
        await server.restart()
        assert server.key not in server.banner


@pytest.mark.nightly
async def test_fifty_queued_jobs_survive_a_kill_charged_once_each(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        order = {"api_key": server.key, "prompt": PROMPT, "response_mode": "polling"}
        replies = await asyncio.gather(
            *(server.call("POST", "/api/anime", {**order, "seed": seed}) for seed in range(50))
        )
        assert {reply.status for reply in replies} == {202}
        await server.kill()
        await server.restart()
        urls = [reply.json["status_url"] for reply in replies]
        assert [await server.final_status(url) for url in urls] == ["completed"] * 50
        assert (await _balance(server))["balance_usd"] == "9.65"
        assert (await _balance(server))["held_usd"] == "0.00"
        status, text = await server.command("ledger", "verify")
        assert status == 0, text


async def test_sigterm_completes_accepted_requests(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        order = {"api_key": server.key, "prompt": PROMPT}
        calls = [
            asyncio.create_task(server.call("POST", "/api/anime", {**order, "seed": seed}))
            for seed in range(8)
        ]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert await server.terminate() == 0
        replies = await asyncio.gather(*calls)
        accepted = [reply for reply in replies if reply.status in {200, 202}]
        assert accepted
        assert {reply.json["error"] for reply in replies if reply not in accepted} <= {
            "The server is shutting down: try again in a moment."
        }
        await server.restart()
        for reply in accepted:
            if reply.status == 202:
                assert await server.final_status(reply.json["status_url"]) == "completed"
        assert (await _balance(server))["balance_usd"] == f"{10 - len(accepted) * 0.007:.3f}"


async def test_killed_worker_is_replaced_and_its_job_reruns(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        order = {"api_key": server.key, "prompt": PROMPT, "num_images": 4, "response_mode": "polling"}
        reply = await server.call("POST", "/api/anime", order)
        children = await wait_until(lambda: descendants(server.process.pid))
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        assert await server.final_status(reply.json["status_url"]) == "completed"
        assert (await _balance(server))["balance_usd"] == "9.972"


def descendants(pid: int) -> list[int]:
    """Return the workers: children of the forkserver, which is the server's child."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    zygotes = {child for child, parent in parents.items() if parent == pid}
    return [child for child, parent in parents.items() if parent in zygotes]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize("mode", nightly_after(1, ["fail", "crash"]))
async def test_failed_image_is_502_and_free(tmp_path: Path, mode: str) -> None:
    environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": f"engine.run.ra1={mode}"}
    async with serving(tmp_path / "data", **environ) as server:
        reply = await server.call("POST", "/api/ra1", {"api_key": server.key, "prompt": PROMPT})
        assert (reply.status, reply.json) == (
            502,
            {"success": False, "error": "Image generation failed. Please try again."},
        )
        assert (await _balance(server))["balance_usd"] == "10.00"


async def test_undecodable_source_is_a_client_error_and_free(tmp_path: Path) -> None:
    ok, encoded = cv2.imencode(".png", np.full((90, 120, 3), 99, np.uint8))
    assert ok
    cut = base64.b64encode(encoded.tobytes()[:-30]).decode()
    async with serving(tmp_path / "data") as server:
        body = {"source_image_url": f"data:image/png;base64,{cut}", "style_prompt": "oil painting"}
        headers = {"Authorization": f"Bearer {server.key}"}
        reply = await server.call("POST", "/api/style-transfer", body, **headers)
        assert reply.status == 422, reply.body
        assert reply.json["detail"][0]["loc"] == ["body", "source_image_url"]
        assert (await _balance(server))["balance_usd"] == "10.00"


@pytest.mark.parametrize("module", ["sixfold", "sixfold.cli.main"])
def test_version_is_printed(module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("sixfold 0.")
