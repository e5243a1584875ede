"""Catalog models `comfyui/NAME`, one for each image model of the operator's ComfyUI servers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from sixfold.engines import image_models
from sixfold.engines.providers.comfyui.capabilities import TEXT_TO_IMAGE, FoundModels, ModelFamily
from sixfold.engines.providers.comfyui.files import base

PREFIX = "comfyui/"
# The input by which the model's row selects the checkpoint.
CHECKPOINT = "checkpoint"
ENGINE = "comfyui-image"
_MAX_MODELS = 300
# The number of LoRAs and samplers of one model; compiling the pattern of so many names takes 20 ms.
_MAX_CHOICES = 500


def ids(files: Iterable[str]) -> dict[str, str]:
    """Return the files by id: the sanitized name of the file, with its folders if the name is not unique."""
    grouped: dict[str, list[str]] = {}
    for file in files:
        grouped.setdefault(_sanitized(base(file)), []).append(file)
    named: dict[str, str] = {}
    for name, those in grouped.items():
        for file in those:
            named.setdefault(name if len(those) == 1 else _sanitized(file), file)
    named.pop("", None)
    return named


def lora_ids(files: Iterable[str]) -> dict[str, str]:
    """Return the LoRA files by the names that requests use, which are derived as in `ids`."""
    return ids(list(files)[:_MAX_CHOICES])


def document(by_server: Iterable[FoundModels]) -> dict[str, Any]:
    """Return a catalog document with a model for each checkpoint of the servers that respond.

    Servers with a checkpoint of the same id share a model, with the samplers and LoRAs of all these servers.
    """
    servers = _usable(by_server)
    files = [ids(server.models) for server in servers]
    offers = functools.cache(lambda having: _offers([servers[index] for index in having]))
    models: dict[str, Any] = {}
    for server, by_id in zip(servers, files, strict=True):
        for name, file in by_id.items():
            if len(models) < _MAX_MODELS and PREFIX + name not in models:
                having = tuple(index for index, those in enumerate(files) if name in those)
                models[PREFIX + name] = _row(name, server.families[file], offers(having))
    return {"models": models}


def signature(servers: Iterable[FoundModels]) -> tuple[Any, ...]:
    return tuple(
        (server.url, server.models, server.samplers, server.schedulers, server.loras)
        for server in _usable(servers)
    )


def _usable(servers: Iterable[FoundModels]) -> list[FoundModels]:
    return [server for server in servers if not server.problem and TEXT_TO_IMAGE in server.serves]


def _sanitized(file: str) -> str:
    path = PurePosixPath(file.replace("\\", "/"))
    return image_models.sanitized(str(path.with_suffix("")))


class _Offers(NamedTuple):
    """The samplers, schedulers and LoRAs of the servers that have a checkpoint."""

    samplers: list[str]
    schedulers: list[str]
    lora: dict[str, Any]


def _offers(servers: list[FoundModels]) -> _Offers:
    loras = sorted({name for server in servers for name in lora_ids(server.loras)})[:_MAX_CHOICES]
    return _Offers(
        _union(server.samplers for server in servers),
        _union(server.schedulers for server in servers),
        image_models.lora(loras),
    )


def _union(stated: Iterable[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(choice for choices in stated for choice in choices))[:_MAX_CHOICES]


def _row(name: str, family: ModelFamily, offers: _Offers) -> dict[str, Any]:
    return {
        "title": name,
        "description": f"Images by the ComfyUI checkpoint {name} ({family.name}).",
        "output_kind": "image",
        "price": "ra2",
        "engines": [ENGINE],
        "fixed": {"format": "png", CHECKPOINT: name},
        "inputs": _inputs(family, offers),
    }


def _inputs(family: ModelFamily, offers: _Offers) -> dict[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {
        **image_models.inputs(min(2048, family.side)),
        **image_models.sampling(family.steps, family.cfg),
        "sampler": _choice("Sampler", family.sampler, offers.samplers),
        "scheduler": _choice("Scheduler", family.scheduler, offers.schedulers),
    }
    return {**rows, "lora": offers.lora} if offers.lora else rows


def _choice(title: str, usual: str, choices: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "string", "choices": choices, "description": f"{title} of ComfyUI"}
    return {**row, "default": usual} if usual in choices else row
