"""SIGHUP reloads the configuration without a restart."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.e2e.servers import Server, serving
from tests.e2e.test_server import descendants
from tests.harness.waiting import wait_until


async def until_logged(server: Server, text: str) -> None:
    log = server.folder.parent / f"{server.folder.name}.log"
    await wait_until(lambda: text in log.read_text())


async def test_sighup_reloads_the_file_and_ends_no_request(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with serving(folder) as server:
        image = {"api_key": server.key, "prompt": "a fox", "size": "1024x1024"}
        running = asyncio.create_task(server.call("POST", "/api/ra1", image))
        workers = await wait_until(lambda: descendants(server.process.pid))
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        server.process.send_signal(signal.SIGHUP)
        await until_logged(server, "was read again; nothing has changed")
        (folder / "sixfold.toml").write_text('[prices]\nown_hardware = "free"\n')
        server.process.send_signal(signal.SIGHUP)
        await until_logged(server, "was reloaded: [prices]")
        assert not running.done()
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        earlier = await running
        assert (earlier.status, earlier.json["cost"]) == (200, "0.04"), earlier.body
        result = await server.call("POST", "/api/ra1", image)
        assert (result.status, result.json["cost"], result.json["list_price"]) == (200, "0.00", "0.04"), (
            result.body
        )
        status, receipt = await server.command("predictions", made_id := await newest(server))
        assert status == 0, receipt
        assert "list price 0.04 USD" in receipt
        assert made_id.startswith("pred_")
        assert await server.terminate() == 0
        assert "never refused for lack of credit" in server.banner


async def newest(server: Server) -> str:
    page = await server.call("GET", "/api/containers/predictions", None, Authorization=f"Bearer {server.key}")
    return str(page.json["predictions"][0]["id"])
