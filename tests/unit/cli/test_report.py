"""Detection without a server: model servers that respond, are slow or absent; weights, keys, a GPU."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold import settings
from sixfold.cli.doctor import report
from sixfold.cli.doctor.report import CheckReport
from sixfold.cli.server import banner
from sixfold.cli.terminal import TerminalStyle
from sixfold.clients import local_servers
from sixfold.clients.chat.servers import ServerStatus
from sixfold.core.catalog.availability import Resource
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, ServedModel
from sixfold.engines.resources import InstalledResources
from sixfold.providers import PROVIDERS
from sixfold.settings import Settings
from tests.fakes.comfyui import comfyui
from tests.fakes.comfyui_nodes import InstalledFiles

VERSION = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"version":"0.9"}'


@asynccontextmanager
async def text_server(text: bytes | None) -> AsyncIterator[int]:
    """Run a server whose every response is `text`, or that never responds; return its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readline()
            if text is None:
                # Wait until the client disconnects.
                await reader.read()
            else:
                writer.write(text)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def ollama_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(local_servers, "CHAT", (msgspec.structs.replace(local_servers.CHAT[0], port=port),))


async def look(folder: Path, **inputs: Any) -> CheckReport:
    configured = settings.load({}, data_dir=folder, **inputs)
    return await asyncio.to_thread(report.read, configured, None)


async def detect(folder: Path, **inputs: object) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in (await look(folder, **inputs)).found}


async def test_responding_model_server_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with text_server(VERSION) as port:
        ollama_at(monkeypatch, port)
        row = (await detect(tmp_path))["Ollama"]
    assert (row["state"], row["found"]) == ("found", f"at http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nversion",
        b"SSH-2.0-version",
        b"",
    ],
)
async def test_another_program_on_its_port_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    async with text_server(text) as port:
        ollama_at(monkeypatch, port)
        row = (await detect(tmp_path))["Ollama"]
    assert (row["state"], row["found"], row["how"]) == ("absent", None, "start Ollama")


async def test_a_port_that_refuses_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with text_server(b"") as port:
        pass
    ollama_at(monkeypatch, port)
    assert (await detect(tmp_path))["Ollama"]["state"] == "absent"


async def test_unresponsive_model_server_is_reported_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PROBE_SECONDS", 0.2)
    async with text_server(None) as port:
        ollama_at(monkeypatch, port)
        row = (await detect(tmp_path))["Ollama"]
    assert (row["state"], row["found"]) == ("slow", None)
    assert row["how"] == f"wait for Ollama: http://127.0.0.1:{port} did not respond in time"


async def test_unresponsive_comfyui_is_reported_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "PROBE_SECONDS", 0.2)
    async with comfyui() as comfy:
        comfy.silent.add("/system_stats")
        row = (await detect(tmp_path, comfyui_url=comfy.url, probe=False))["ComfyUI"]
    assert (row["state"], row["found"], row["url"]) == ("slow", None, comfy.url)
    assert row["how"] == f"wait for ComfyUI: {comfy.url} did not respond within 0.2 seconds"


async def test_no_server_is_probed_if_probing_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with text_server(VERSION) as port:
        ollama_at(monkeypatch, port)
        assert (await detect(tmp_path, probe=False))["Ollama"]["found"] is None


async def test_own_port_is_not_reported_as_a_model_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with text_server(VERSION) as port:
        ollama_at(monkeypatch, port)
        assert (await detect(tmp_path, port=port))["Ollama"]["found"] is None


async def test_model_table_agrees_with_the_detected_servers(tmp_path: Path) -> None:
    async with comfyui() as comfy:
        report = await look(tmp_path, comfyui_url=comfy.url, probe=False)
    row = next(row for row in report.found if row["name"] == "ComfyUI")
    assert (row["state"], row["found"]) == ("found", f"0.8.0 at {comfy.url}")
    assert row["unlocks"].startswith("text-to-image, image-to-image, fill by sd_xl_base_1.0.safetensors; ")
    assert "upscale by RealESRGAN_x4plus.safetensors" in row["unlocks"]
    served = {model["model"]: (model["engine"], model["quality"]) for model in report.models}
    assert served["ra1"] == ("comfyui-image", "full")
    assert served["upscaler"] == ("comfyui-upscale", "full")


async def test_comfyui_without_models_names_a_checkpoint_to_add(tmp_path: Path) -> None:
    async with comfyui(InstalledFiles(checkpoints=(), upscale_models=())) as comfy:
        row = (await detect(tmp_path, comfyui_url=comfy.url))["ComfyUI"]
    assert "put a checkpoint such as sd_xl_base_1.0.safetensors into its folder" in row["unlocks"]


async def test_unreachable_configured_comfyui_is_reported(tmp_path: Path) -> None:
    async with comfyui() as comfy:
        url = comfy.url
    row = (await detect(tmp_path, comfyui_url=url))["ComfyUI"]
    assert row["state"] == "unreachable"
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(rf"has not responded since {moment}: cannot be reached \({url}\)", row["how"])


async def test_unreachable_configured_model_server_is_reported(tmp_path: Path) -> None:
    async with text_server(b"") as port:
        pass
    url = f"http://127.0.0.1:{port}"
    file = tmp_path / "sixfold.toml"
    file.write_text(f'[gateway.upstreams.box]\nkind = "vllm"\nbase_url = "{url}/v1"\nmodels = ["small"]\n')
    configured = settings.load({"SIXFOLD_CONFIG": str(file)}, data_dir=tmp_path, probe=False)
    current = await asyncio.to_thread(report.read, configured, None)
    row = next(row for row in current.found if row["name"] == "box (vLLM)")
    assert (row["state"], row["found"], row["url"]) == ("unreachable", None, url)
    assert row["how"].startswith("has not responded since ")
    assert row["how"].endswith(f": could not be reached ({url})")
    relay = next(row for row in current.engines if row["engine"] == "relay")
    assert not relay["ready"]
    assert relay["detail"].startswith("box has not responded since ")


# -- keys, weights, embedded engines ---------------------------------------------------------------


def provider_keys() -> dict[str, str]:
    return {
        "FAL_KEY": "secret-1",
        "REPLICATE_API_TOKEN": "secret-2",
        "SIXFOLD_OPENAI_API_KEY": "secret-3",
        "ANTHROPIC_API_KEY": "other",
        "SIXFOLD_ANTHROPIC_API_KEY": "secret-4",
        "HF_TOKEN": "secret-5",
    }


async def installed_resources(configured: Settings, *kinds: str) -> dict[str, Resource]:
    everything = await InstalledResources(configured, kinds, None, lambda: (), ()).resources()
    return {resource.name: resource for resource in everything}


async def test_provider_key_has_two_names_and_is_never_shown(tmp_path: Path) -> None:
    configured = settings.load({**provider_keys(), "SIXFOLD_PROBE": "0"}, data_dir=tmp_path)
    keys = {name: getattr(configured, name) for name in settings.PROVIDER_KEYS}
    assert {name: key for name, key in keys.items() if key} == {
        "fal_key": "secret-1",
        "replicate_api_token": "secret-2",
        "openai_api_key": "secret-3",
        "anthropic_api_key": "secret-4",
        "hf_token": "secret-5",
    }
    things = await installed_resources(configured)
    assert {name for name, each in things.items() if each.found} >= {
        "fal",
        "Replicate",
        "OpenAI",
        "Anthropic",
    }
    assert "secret" not in repr(configured) + repr(things)


async def test_unused_weights_are_reported_as_unused(tmp_path: Path) -> None:
    (tmp_path / "weights" / "image" / "sd-turbo").mkdir(parents=True)
    (tmp_path / "weights" / "chat" / ".unfinished-small").mkdir(parents=True)
    configured = settings.load({}, data_dir=tmp_path, probe=False)
    before = (await installed_resources(configured, "embedded"))["weights"]
    after = (await installed_resources(configured, "embedded", "weights"))["weights"]
    assert (before.found, before.used, after.used) == ("image", False, True)
    assert "not used by any engine of this version" in banner.benefit(before.unlocks, used=before.used)
    assert "once" not in banner.benefit(after.unlocks, used=after.used)


async def test_uninstalled_embedded_engines_are_reported_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configured = settings.load({}, data_dir=tmp_path, probe=False)
    assert "embedded" not in await installed_resources(configured)
    monkeypatch.setitem(sys.modules, "cv2", None)
    things = await installed_resources(configured)
    assert things["embedded"].how == "install `sixfold[embedded]`"
    banner.print_found(TerminalStyle(), [things["embedded"]])
    printed = capsys.readouterr().out
    assert "and no embedded engines" in printed
    assert "install `sixfold[embedded]` for images, videos and audio without weights" in printed


def test_commands_of_the_banner_name_a_data_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    default = settings.load({}, probe=False)
    assert banner.command(default, "open") == "`sixfold open`"
    other = settings.load({}, data_dir=tmp_path / "my data", probe=False)
    assert banner.command(other, "open") == f"`sixfold open --data-dir '{tmp_path}/my data'`"


def test_banner_marks_a_slow_server(capsys: pytest.CaptureFixture[str]) -> None:
    how = "wait for ComfyUI: http://127.0.0.1:8188 did not respond within 1 second"
    banner.print_found(
        TerminalStyle(), [Resource("ComfyUI", "comfyui", None, "images", how, used=True, state="slow")]
    )
    printed = capsys.readouterr().out
    assert how in printed
    assert "unlock more" not in printed


@pytest.mark.parametrize(
    ("models", "offers"),
    [
        ({"qwen3": CHAT}, "chat and text-llm"),
        ({"qwen3": CHAT, "nomic": EMBEDDINGS}, "chat, text-llm and embeddings"),
        ({"nomic": EMBEDDINGS}, "embeddings"),
    ],
)
@pytest.mark.parametrize(("host", "location"), [("127.0.0.1", " on this machine"), ("gpu-box", "")])
async def test_model_server_is_found_with_its_capabilities(
    tmp_path: Path, models: dict[str, str], offers: str, host: str, location: str
) -> None:
    listing = tuple(ServedModel(name, frozenset({able}), stated=True) for name, able in models.items())
    server = ServerStatus(
        "ollama", f"http://{host}:11434", "ready", tuple(models), "ollama", "Ollama", host, True, listing
    )
    resources = InstalledResources(settings.load({}, data_dir=tmp_path), (), None, lambda: (server,), ())
    row = next(each for each in await resources.resources() if each.name == "Ollama")
    pull = "" if "qwen3" in models else "; `ollama pull qwen3` for chat"
    assert row.unlocks == f"{offers}{location}{pull}"


async def test_ollama_without_models_is_found_with_a_command(tmp_path: Path) -> None:
    server = ServerStatus(
        "ollama", "http://127.0.0.1:11434", "ready", (), "ollama", "Ollama", discovered=True
    )
    resources = InstalledResources(settings.load({}, data_dir=tmp_path), (), None, lambda: (server,), ())
    row = next(each for each in await resources.resources() if each.name == "Ollama")
    assert row.unlocks == "`ollama pull qwen3` for chat"


def test_container_banner_omits_the_host_if_a_server_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://host.docker.internal:11434"
    there = Resource("Ollama", "chat", f"at {url}", "chat", "", used=True, state="found", url=url)
    banner.print_found(TerminalStyle(), [there], container=True)
    assert "Model servers are searched" not in capsys.readouterr().out


def test_banner_in_a_container_names_the_host_address(capsys: pytest.CaptureFixture[str]) -> None:
    banner.print_found(TerminalStyle(), [], container=True)
    sentence = "Model servers are searched at host.docker.internal and in SIXFOLD_PROBE_HOSTS."
    assert sentence in " ".join(capsys.readouterr().out.split())
    banner.print_found(TerminalStyle(), [])
    assert "host.docker.internal" not in capsys.readouterr().out


async def test_slow_refresh_of_resources_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sixfold.engines.resources.REFRESH_SECONDS", 0.01)
    end_event, runs = asyncio.Event(), 0

    async def slow() -> None:
        nonlocal runs
        runs += 1
        await end_event.wait()

    configured = settings.load({}, data_dir=tmp_path, probe=False)
    resources = InstalledResources(configured, (), None, lambda: (), (slow,))
    await resources.refresh()
    await resources.refresh()
    assert runs == 1
    end_event.set()


def test_banner_names_some_keys_of_providers_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    missing = [
        Resource(name, "provider", None, "chat", f"set {spec.variable}", used=True)
        for name, spec in PROVIDERS.items()
    ]
    banner.print_found(TerminalStyle(), missing)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "unlock more" in line]
    assert line.endswith(": `sixfold provider list` shows all")
    assert "FAL_KEY, REPLICATE_API_TOKEN, OPENAI_API_KEY, ANTHROPIC_API_KEY:" in line
