"""What is found on a machine, and what is honestly said of it."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.cli import banner, found
from sixfold.cli.found import Thing
from sixfold.cli.terminal import Paint
from sixfold.settings import Settings
from sixfold.upstreams import local
from tests.fakes.comfyui import comfyui
from tests.fakes.comfyui_nodes import Shelf


@asynccontextmanager
async def answering(text: bytes | None) -> AsyncIterator[int]:
    """A server that answers everything with `text`, or with silence; gives its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if text is None:
            await reader.read()  # until the other side gives up
        else:
            writer.write(text)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def ollama_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(local, "CHAT", (dataclasses.replace(local.CHAT[0], port=port),))


async def look(folder: Path, *kinds: str, **given: object) -> dict[str, Thing]:
    configured = settings.load({}, data_dir=folder, **given)
    return {thing.name: thing for thing in await found.look(configured, kinds)}


async def test_a_model_server_that_answers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(b'HTTP/1.1 200 OK\r\n\r\n{"version":"0.9"}') as port:
        ollama_at(monkeypatch, port)
        assert (await look(tmp_path))["Ollama"].found == f"at http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "text",
    [b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 404 Not Found\r\n\r\nversion", b"SSH-2.0-version", b""],
)
async def test_another_program_on_its_port_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    async with answering(text) as port:
        ollama_at(monkeypatch, port)
        assert (await look(tmp_path))["Ollama"].found is None


async def test_a_server_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(None) as port:
        ollama_at(monkeypatch, port)
        assert (await look(tmp_path))["Ollama"].found is None  # it would be silent for ever


async def test_nothing_is_asked_when_probing_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(b'HTTP/1.1 200 OK\r\n\r\n{"version":"0.9"}') as port:
        ollama_at(monkeypatch, port)
        assert (await look(tmp_path, probe=False))["Ollama"].found is None


async def test_our_own_port_is_no_model_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(b'HTTP/1.1 200 OK\r\n\r\n{"version":"0.9"}') as port:
        ollama_at(monkeypatch, port)
        assert (await look(tmp_path, port=port))["Ollama"].found is None


def provider_keys() -> dict[str, str]:
    return {
        "FAL_KEY": "secret-1",
        "REPLICATE_API_TOKEN": "secret-2",
        "SIXFOLD_OPENAI_API_KEY": "secret-3",
        "ANTHROPIC_API_KEY": "other",
        "SIXFOLD_ANTHROPIC_API_KEY": "secret-4",
        "HF_TOKEN": "secret-5",
    }


def configured_with_keys(folder: Path) -> Settings:
    return settings.load({**provider_keys(), "SIXFOLD_PROBE": "0"}, data_dir=folder)


async def test_a_providers_key_is_found_under_both_names_and_never_shown(tmp_path: Path) -> None:
    configured = configured_with_keys(tmp_path)
    assert [getattr(configured, name) for name in settings.PROVIDER_KEYS] == [
        f"secret-{number}" for number in (1, 2, 3, 4, 5)
    ]
    things = await found.look(configured, ())
    assert {thing.name for thing in things if thing.found} >= {"fal", "Replicate", "OpenAI", "Anthropic"}
    assert "secret" not in repr(configured) + repr(things)


async def test_what_no_engine_uses_yet_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "weights" / "image").mkdir(parents=True)
    before = (await look(tmp_path, "embedded", probe=False))["weights"]
    after = (await look(tmp_path, "embedded", "weights", probe=False))["weights"]
    assert (before.found, before.used, after.used) == ("image", False, True)
    assert "once an engine here can use it" in banner.benefit(before)
    assert "once" not in banner.benefit(after)


async def test_a_comfyui_is_found_with_what_it_serves(tmp_path: Path) -> None:
    async with comfyui() as comfy:
        thing = (await look(tmp_path, "comfyui", comfyui_url=comfy.url, probe=False))["ComfyUI"]
    assert (thing.found, thing.used) == (f"0.8.0 at {comfy.url}", True)
    assert thing.unlocks.startswith("text-to-image and image-to-image by sd_xl_base_1.0.safetensors; ")
    assert "upscale by RealESRGAN_x4plus.safetensors" in banner.benefit(thing)


async def test_a_comfyui_on_its_usual_port_is_found_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with comfyui() as comfy:
        port = int(comfy.url.rpartition(":")[2])
        monkeypatch.setattr(local, "COMFYUI", dataclasses.replace(local.COMFYUI, port=port))
        assert (await look(tmp_path, "comfyui"))["ComfyUI"].found == f"0.8.0 at {comfy.url}"
        assert (await look(tmp_path, "comfyui", comfyui_port=port))["ComfyUI"].found is None
        assert (await look(tmp_path, "comfyui", probe=False))["ComfyUI"].found is None


async def test_a_comfyui_without_models_says_what_to_put_where(tmp_path: Path) -> None:
    async with comfyui(Shelf(checkpoints=(), upscale_models=())) as comfy:
        thing = (await look(tmp_path, "comfyui", comfyui_url=comfy.url))["ComfyUI"]
    assert "put a checkpoint such as sd_xl_base_1.0.safetensors into its folder" in thing.unlocks


async def test_a_configured_comfyui_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with comfyui() as comfy:
        url = comfy.url
    thing = (await look(tmp_path, "comfyui", comfyui_url=url))["ComfyUI"]
    assert (thing.found, thing.how) == (None, f"ComfyUI cannot be reached ({url})")


async def test_embedded_engines_that_are_not_installed_are_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "embedded" not in await look(tmp_path, probe=False)
    monkeypatch.setitem(sys.modules, "cv2", None)
    things = await look(tmp_path, probe=False)
    assert things["embedded"].how == "install `sixfold[embedded]`"
    banner.found(Paint(), [things["embedded"]])
    told = capsys.readouterr().out
    assert "nor the embedded engines" in told
    assert "install `sixfold[embedded]` for pictures, films and sounds without weights" in told
