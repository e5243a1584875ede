"""The operator's options of the diffusion engines: weights for each model, devices and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from sixfold.engines.image.diffusers import sources

OFFLOADS = ("auto", "none", "model", "sequential")
DEVICES = ("auto", "cuda", "mps", "cpu")
DTYPES = ("auto", "bfloat16", "float16", "float32")


_MINIMUM = {"steps": 1, "guidance": 0, "budget_bytes": 0, "rows": 1, "threads": 0}


class InvalidDiffusersOption(ValueError):
    """Raised for an invalid option; the message names the option and its valid values."""


class LoraAdapter(msgspec.Struct, frozen=True):
    """A LoRA: a file in the weights' `loras` folder or a path, and its weight."""

    file: str
    weight: float = 1.0


@dataclass(frozen=True)
class DiffusersOptions:
    """Options of a diffusion engine.

    A source is a name under `weights`, a folder, a `.safetensors` file, or a repository in the local Hugging
    Face cache (`owner/name`, `owner/name@revision`). Without a source, the weights added by `sixfold engines
    add` are used.

    `models` overrides `source` for single models; `controls` names ControlNets by kind, for those that are
    not found automatically; `loras` adds adapters to models; `steps` and `guidance` override the model's
    defaults; `budget_bytes` limits the memory of all loaded pipelines (0: the device's memory); `rows` limits
    one denoising batch; `threads` limits CPU threads (0: torch's default).
    """

    weights: Path | None = None
    source: str = ""
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    controls: Mapping[str, str] = field(default_factory=dict[str, str])
    loras: Mapping[str, tuple[LoraAdapter, ...]] = field(default_factory=dict[str, tuple[LoraAdapter, ...]])
    hub_cache: Path | None = None
    device: str = "auto"
    dtype: str = "auto"
    offload: str = "auto"
    steps: int | None = None
    guidance: float | None = None
    budget_bytes: int = 0
    rows: int = 8
    threads: int = 0

    def source_of(self, model: str) -> str:
        """Return a model's source: the configured source, the weights added for the model, or the default."""
        return self.models.get(model) or self.source or self.added.get(model) or self.added.get("", "")

    @cached_property
    def added(self) -> Mapping[str, str]:
        """The weights that `engines add` installed, by model; the key "" contains the default."""
        return sources.added_weights(self.weights) if self.weights is not None else {}


def parse(settings: Mapping[str, Any]) -> DiffusersOptions:
    """Parse options from a configuration table; raises `InvalidDiffusersOption`."""
    names = {spec.name for spec in fields(DiffusersOptions)}
    for name in settings:
        if name not in names:
            raise InvalidDiffusersOption(
                f"the image engine has an unknown option {name!r}: use {', '.join(sorted(names))}"
            )
    values = dict(settings)
    for name in ("weights", "hub_cache"):
        values[name] = Path(values[name]).expanduser() if values.get(name) else None
    for name, choices in (("device", DEVICES), ("dtype", DTYPES), ("offload", OFFLOADS)):
        if values.get(name, "auto") not in choices:
            raise InvalidDiffusersOption(f"{name} must be one of {', '.join(choices)} (got {values[name]!r})")
    for name, minimum in _MINIMUM.items():
        _number(name, values.get(name), minimum)
    values["loras"] = {model: parse_adapters(listed) for model, listed in values.get("loras", {}).items()}
    return DiffusersOptions(**values)


def _number(name: str, value: Any, minimum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or value < minimum:
        raise InvalidDiffusersOption(f"{name} must be a number of at least {minimum} (got {value!r})")


def parse_adapters(entries: Any) -> tuple[LoraAdapter, ...]:
    """Parse LoRAs from a list of files, or of tables with `file` and `weight`."""
    if not isinstance(entries, (list, tuple)):
        raise InvalidDiffusersOption("loras must be a list")
    adapters: list[LoraAdapter] = []
    for entry in entries:
        row = {"file": entry} if isinstance(entry, str) else dict(entry)
        if not isinstance(row.get("file"), str) or set(row) - {"file", "weight"}:
            raise InvalidDiffusersOption('a LoRA must be a file name or {file = "…", weight = 0.8}')
        adapters.append(LoraAdapter(row["file"], float(row.get("weight", 1.0))))
    return tuple(adapters)
