"""What the operator chose for the engine: which weights serve which model, where they run, with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from sixfold.engines.image.diffusers import sources

OFFLOADS = ("auto", "none", "model", "sequential")
DEVICES = ("auto", "cuda", "mps", "cpu")
DTYPES = ("auto", "bfloat16", "float16", "float32")


_LEAST = {"steps": 1, "guidance": 0, "budget_bytes": 0, "rows": 1, "threads": 0}


class InvalidDiffusersOption(ValueError):
    """An option cannot be understood; the text names it and what would be valid."""


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """One LoRA: a file under the weights' `loras` folder, or anywhere, and how strongly it counts."""

    file: str
    weight: float = 1.0


@dataclass(frozen=True)
class DiffusersOptions:
    """The row's options. A source is a name under `weights`, a folder, a `.safetensors` file, or a
    repository in the Hub's local cache (`owner/name`, `owner/name@revision`); without one, what
    `sixfold engines add` put under `weights` serves.

    `models` gives services another source than `source`; `controls` names ControlNets by kind, where an
    added one is not to be found by itself; `loras` gives services their adapters; `steps` and `guidance`
    replace the model's own numbers; `budget_bytes` bounds what loaded pipelines take together (0: what
    the device has); `rows` bounds one denoising loop; `threads` the processor's (0: torch's own choice).
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
        """The source that serves a model: the operator's choice, or what was added for it, or at all."""
        return self.models.get(model) or self.source or self.added.get(model) or self.added.get("", "")

    @cached_property
    def added(self) -> Mapping[str, str]:
        """What `engines add` put here, by the services that it was made for; under "" what came first."""
        return sources.added(self.weights) if self.weights is not None else {}


def parse(given: Mapping[str, Any]) -> DiffusersOptions:
    """Options from a table of the configuration; raises `InvalidDiffusersOption` with one sentence."""
    known = {spec.name for spec in fields(DiffusersOptions)}
    for name in given:
        if name not in known:
            raise InvalidDiffusersOption(
                f"the picture engine has no option {name!r}; it has {', '.join(sorted(known))}"
            )
    values = dict(given)
    for name in ("weights", "hub_cache"):
        values[name] = Path(values[name]).expanduser() if values.get(name) else None
    for name, choices in (("device", DEVICES), ("dtype", DTYPES), ("offload", OFFLOADS)):
        if values.get(name, "auto") not in choices:
            raise InvalidDiffusersOption(f"{name} must be one of {', '.join(choices)}, not {values[name]!r}")
    for name, least in _LEAST.items():
        _number(name, values.get(name), least)
    values["loras"] = {model: adapters(listed) for model, listed in values.get("loras", {}).items()}
    return DiffusersOptions(**values)


def _number(name: str, value: Any, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
        raise InvalidDiffusersOption(f"{name} must be a number of at least {least}, not {value!r}")


def adapters(listed: Any) -> tuple[LoraAdapter, ...]:
    """Adapters from a list of files, or of tables with `file` and `weight`."""
    if not isinstance(listed, (list, tuple)):
        raise InvalidDiffusersOption("LoRAs are given as a list")
    found: list[LoraAdapter] = []
    for one in listed:
        row = {"file": one} if isinstance(one, str) else dict(one)
        if not isinstance(row.get("file"), str) or set(row) - {"file", "weight"}:
            raise InvalidDiffusersOption('a LoRA is a file, or {file = "…", weight = 0.8}')
        found.append(LoraAdapter(row["file"], float(row.get("weight", 1.0))))
    return tuple(found)
