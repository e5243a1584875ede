"""The server is killed while a provider works: the job runs again, and is charged once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.e2e import servers
from tests.fakes import fal


async def _wait_for_end(server: servers.Server, path: str) -> str:
    """How a job ends; the wire has no event for another process."""
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 - of another process there is no event
            status := (await server.call("GET", path)).json["status"]
        ) not in {"completed", "failed"}:
            await asyncio.sleep(0.1)
    return status


async def test_killed_server_finishes_the_provider_job_charged_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    queue = fal.Fal(ends=False)
    async with fal.running(queue):
        (folder / "sixfold.toml").write_text(f'[engines.fal-image]\nbase_url = "{queue.url}"\n')
        environ = {"FAL_KEY": fal.KEY, "SIXFOLD_FETCH_ALLOW": "127.0.0.1", "SIXFOLD_LEASE_SECONDS": "1"}
        async with servers.serving(folder, **environ) as server:
            order = {"api_key": server.key, "prompt": "a fox", "response_mode": "polling"}
            accepted = await server.call("POST", "/api/ra1", order)
            assert accepted.status == 202
            await queue.faults.event("status").wait()
            await server.kill()
            queue.ends = True
            await server.restart()
            assert await _wait_for_end(server, accepted.json["status_url"]) == "completed"
            status, text = await server.command("account", "show", "local@localhost", "--json")
            assert status == 0
            visible = json.loads(text)
            assert (visible["balance_usd"], visible["held_usd"]) == ("9.96", "0.00")
            assert (await server.command("ledger", "verify"))[0] == 0
            log = (tmp_path / "data.log").read_text()
        assert fal.KEY not in log
        stored = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        assert not any(fal.KEY.encode() in content for content in stored)
    # fal knows nothing that would let a second submission find the first: its second job is paid for, too.
    assert len(queue.jobs) == 2
