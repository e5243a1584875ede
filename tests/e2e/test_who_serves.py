"""One request served by weights, ComfyUI, each provider or the painter: labeled, and charged once."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

from sixfold.providers import PROVIDERS
from tests.e2e import servers
from tests.e2e.servers import Server
from tests.fakes import comfyui, fal, openai, replicate
from tests.harness import processes
from tests.harness.cases import nightly_after
from tests.unit.engines.diffusers.conftest import PACKAGE_MISSING

PRICE = 0.04
ORDER = {"prompt": "a red fox in the snow", "size": "768x1152", "seed": 7}


@dataclass
class EngineSetup:
    """Configuration of a server: lines of `sixfold.toml`, and its environment."""

    toml: str = ""
    environ: dict[str, str] = field(default_factory=dict[str, str])


@asynccontextmanager
async def weights(folder: Path) -> AsyncIterator[EngineSetup]:
    pytest.importorskip("diffusers", reason=PACKAGE_MISSING)
    from tests.unit.engines.diffusers import tiny  # noqa: PLC0415 - it needs torch

    pipeline = tiny.stable_diffusion(folder / "sd")
    yield EngineSetup(f'[engines.weights-image]\nsource = "{pipeline}"\nsteps = 2\n')


@asynccontextmanager
async def running_comfyui(_folder: Path) -> AsyncIterator[EngineSetup]:
    async with comfyui.comfyui() as fake:
        yield EngineSetup(environ={"SIXFOLD_COMFYUI_URL": fake.url})


@asynccontextmanager
async def running_fal(_folder: Path) -> AsyncIterator[EngineSetup]:
    async with fal.running() as fake:
        table = f'[engines.fal-image]\nbase_url = "{fake.url}"\n'
        yield EngineSetup(table, {"FAL_KEY": fal.KEY})


@asynccontextmanager
async def running_replicate(_folder: Path) -> AsyncIterator[EngineSetup]:
    async with replicate.running() as fake:
        table = f'[engines.replicate-image]\nbase_url = "{fake.url}"\n'
        yield EngineSetup(table, {"REPLICATE_API_TOKEN": replicate.KEY})


@asynccontextmanager
async def running_openai(_folder: Path) -> AsyncIterator[EngineSetup]:
    async with openai.running() as fake:
        table = f'[engines.openai-image]\nbase_url = "{fake.url}"\n'
        yield EngineSetup(table, {"OPENAI_API_KEY": openai.KEY})


@asynccontextmanager
async def nothing(_folder: Path) -> AsyncIterator[EngineSetup]:
    yield EngineSetup()


SETUPS = {
    "weights-image": (weights, "full"),
    "comfyui-image": (running_comfyui, "full"),
    "fal-image": (running_fal, "full"),
    "replicate-image": (running_replicate, "full"),
    "openai-image": (running_openai, "full"),
    "scene-painter": (nothing, "preview"),
}


@asynccontextmanager
async def server_on(folder: Path, *names: str) -> AsyncIterator[Server]:
    """A server that finds what these engines need."""
    async with AsyncExitStack() as stack:
        setups = [await stack.enter_async_context(SETUPS[name][0](folder)) for name in names]
        data = folder / "data"
        data.mkdir()
        (data / "sixfold.toml").write_text("\n".join(setup.toml for setup in setups))
        environ = {name: value for setup in setups for name, value in setup.environ.items()}
        environ["SIXFOLD_FETCH_ALLOW"] = "127.0.0.0/8"
        server = await stack.enter_async_context(servers.serving(data, **environ))
        await all_found(server, names)
        yield server


async def all_found(server: Server, names: Sequence[str]) -> None:
    """Wait until the start page lists these engines as ready: servers are probed in the background."""
    async with asyncio.timeout(processes.PATIENCE_SECONDS):
        while True:
            page = (await server.call("GET", "/", Accept="text/html")).body.decode()
            if all(re.search(rf"<code>{name}</code></td>.*?<td>ready</td>", page) for name in names):
                return
            await asyncio.sleep(0.2)


async def balance(server: Server) -> float:
    _, response = await server.command("account", "show", "local@localhost", "--json")
    return float(json.loads(response)["balance_usd"])


@pytest.mark.parametrize("engine", nightly_after(1, sorted(SETUPS)))
async def test_request_is_served_labeled_and_charged_once(engine: str, tmp_path: Path) -> None:
    async with server_on(tmp_path, engine) as server:
        before = await balance(server)
        bearer = {"Authorization": f"Bearer {server.key}"}
        reply = await server.call("POST", "/api/ra1", ORDER, **bearer)
        assert reply.status == 200, reply.body
        assert reply.headers["x-sixfold-engine"] == engine
        assert reply.headers["x-sixfold-quality"] == SETUPS[engine][1]
        assert reply.json["cost"] == f"{PRICE}"
        picture = await server.call("GET", reply.json["image_url"].partition(str(server.port))[2])
        with Image.open(io.BytesIO(picture.body)) as image:
            assert image.size == (768, 1152)
            image.load()
            shades = image.convert("L").resize((16, 16)).tobytes()
            assert len(set(shades)) > 8, "a picture, not a plane"
        assert await balance(server) == pytest.approx(before - PRICE)
        _, response = await server.command("ledger", "costs", "--json")
        (cost,) = json.loads(response)["engines"]
        assert (cost["engine"], cost["runs"]) == (engine, 1)
        assert (float(cost["spent_usd"]) > 0) == (engine.partition("-")[0] in PROVIDERS)
        assert (await server.command("ledger", "verify"))[0] == 0


async def test_first_available_engine_serves_unless_pinned(tmp_path: Path) -> None:
    async with server_on(tmp_path, "comfyui-image", "fal-image", "openai-image") as server:
        bearer = {"Authorization": f"Bearer {server.key}"}
        first = await server.call("POST", "/api/ra1", ORDER, **bearer)
        assert first.headers["x-sixfold-engine"] == "comfyui-image"
        config = server.folder / "sixfold.toml"
        config.write_text('[engines]\norder = ["provider"]\n' + config.read_text())
        await server.terminate()
        await server.restart()
        second = await server.call("POST", "/api/ra1", ORDER, **bearer)
        assert second.headers["x-sixfold-engine"] == "fal-image"
