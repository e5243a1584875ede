"""The server is killed while a provider works: the job runs again, and is charged once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import servers
from tests.fakes import fal


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
            assert await server.final_status(accepted.json["status_url"]) == "completed"
            status, text = await server.command("account", "show", "local@localhost", "--json")
            assert status == 0
            document = json.loads(text)
            assert (document["balance_usd"], document["held_usd"]) == ("9.96", "0.00")
            assert (await server.command("ledger", "verify"))[0] == 0
            log = (tmp_path / "data.log").read_text()
        assert fal.KEY not in log
        stored = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        assert not any(fal.KEY.encode() in content for content in stored)
    # fal has no key by which the first submission could be found, so the second job is paid for, too.
    assert len(queue.jobs) == 2
