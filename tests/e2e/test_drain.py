"""SIGTERM during a request without a job id: the caller gets the image or an error with the remedy."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path

from PIL import Image

from tests.e2e.servers import Reply, Server, serving
from tests.e2e.test_server import descendants
from tests.harness import image_files
from tests.harness.waiting import wait_until

IMAGE_PATH = "/create_image?prompt=a+harbour&width=256&height=256&seed=1"
HANGING = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.create_image=hang"}


async def send(server: Server) -> Reply:
    return await server.call("GET", IMAGE_PATH, Authorization=f"Bearer {server.key}")


async def money(server: Server) -> tuple[str, str]:
    result = await server.call("GET", "/api/account", Authorization=f"Bearer {server.key}")
    return result.json["balance_usd"], result.json["held_usd"]


async def states(server: Server) -> list[str]:
    response = await server.call("GET", "/api/containers/predictions", Authorization=f"Bearer {server.key}")
    return [row["status"] for row in response.json["predictions"]]


async def wait_for_worker(server: Server) -> list[int]:
    return await wait_until(lambda: descendants(server.process.pid))


async def until_it_runs(server: Server) -> None:
    async with asyncio.timeout(60):
        while await states(server) != ["running"]:
            pass


async def test_running_image_is_delivered_before_shutdown(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        pending_task = asyncio.create_task(send(server))
        workers = await wait_for_worker(server)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        ending = asyncio.create_task(server.terminate())
        async with asyncio.timeout(60):
            while (await server.call("GET", "/readyz")).status != 503:
                pass
        assert not pending_task.done()
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        response = await pending_task
        assert (response.status, await ending) == (200, 0)
        assert Image.open(io.BytesIO(response.body)).size == (256, 256)


async def test_request_beyond_the_drain_time_is_503_and_free(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", SIXFOLD_DRAIN_SECONDS="0.5", **HANGING) as server:
        before = await money(server)
        pending_task = asyncio.create_task(send(server))
        await until_it_runs(server)
        assert await server.terminate() == 0
        response = await pending_task
        assert (response.status, "try again in a moment" in response.json["detail"]) == (503, True)
        await server.restart()
        assert await money(server) == before
        assert await states(server) == ["canceled"]


async def test_idempotent_request_resumes_after_restart_charged_once(tmp_path: Path) -> None:
    hanging = {**HANGING, "SIXFOLD_FAILPOINTS": "engine.run.style-transfer=hang"}
    async with serving(tmp_path / "data", SIXFOLD_DRAIN_SECONDS="0.5", **hanging) as server:
        own = {"Authorization": f"Bearer {server.key}"}
        sent = await server.call(
            "POST",
            "/api/uploads",
            image_files.encode(Image.linear_gradient("L")),
            Content_Type="image/png",
            **own,
        )
        body = {"source_image_url": sent.json["url"], "style_prompt": "ukiyo-e"}

        async def send_run() -> Reply:
            return await server.call("POST", "/api/style-transfer", body, Idempotency_Key="once", **own)

        balance, _ = await money(server)
        pending_task = asyncio.create_task(send_run())
        await until_it_runs(server)
        assert await server.terminate() == 0
        response = await pending_task
        assert (response.status, "with the same Idempotency-Key" in response.json["detail"]) == (503, True)
        for name in hanging:
            del server.environ[name]
        await server.restart()
        assert ((await send_run()).status, await states(server)) == (200, ["succeeded"])
        left, held = await money(server)
        assert (round(float(balance) - float(left), 3), float(held)) == (0.04, 0)
