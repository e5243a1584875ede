"""What ComfyUI clients read before they queue a prompt: the files to choose from, and the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import running_app


@pytest.mark.parametrize("base", ["", "/api"])
async def test_loaders_list_model_files_and_examples(tmp_path: Path, base: str) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:

        async def read(path: str) -> Any:
            return (await app.client.get(f"{base}{path}", headers=app.bearer)).json()

        async def choices(class_type: str, name: str) -> list[str]:
            document = await read(f"/object_info/{class_type}")
            return document[class_type]["input"]["required"][name][0]

        assert "sd_xl_base_1.0.safetensors" in await choices("CheckpointLoaderSimple", "ckpt_name")
        for class_type, name, folder in (
            ("CheckpointLoaderSimple", "ckpt_name", "checkpoints"),
            ("LoraLoader", "lora_name", "loras"),
            ("UpscaleModelLoader", "model_name", "upscale_models"),
        ):
            assert await choices(class_type, name) == await read(f"/models/{folder}")
        assert await choices("LoadImage", "image") == ["example.png"]
        assert await choices("LoadAudio", "audio") == ["sample.wav"]
        assert "euler" in await choices("KSampler", "sampler_name")


async def test_system_stats_report_the_memory(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        stats = (await app.client.get("/system_stats", headers=app.bearer)).json()
        system, device = stats["system"], stats["devices"][0]
        assert system["ram_total"] > system["ram_free"] > 0
        assert (device["type"], device["vram_total"]) == ("cpu", system["ram_total"])
