"""Build pipelines of the sizes in `full_size.toml` with random weights, one component at a time."""

# The library's annotations are narrower than the values that it accepts.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers

from tests.unit.engines.diffusers import tiny

_TABLE = Path(__file__).with_suffix(".toml")
_TOKENIZERS = {"clip": tiny.tokenizer, "bytes": tiny.bytes_tokenizer, "chat": tiny.chat_tokenizer}
# Random weights are drawn once and repeated from different offsets: drawing 6 billion numbers takes minutes.
_BLOCK_SIZE = 2**24
_DEVIATION = 0.02


def names() -> list[str]:
    return list(_rows())


def row_of(name: str) -> Mapping[str, Any]:
    """Return the row of a pipeline: its class, components, and the `side` and `frames` of a request."""
    return _rows()[name]


def build(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Save a pipeline in the format of the Hub and return its folder; the weights are deterministic."""
    row = row_of(name)
    components = {key: value for key, value in row.items() if isinstance(value, Mapping)}
    index: dict[str, Any] = {"_class_name": row["class"], "_diffusers_version": diffusers.__version__}
    block = torch.randn(_BLOCK_SIZE, generator=torch.Generator().manual_seed(0)).mul_(_DEVIATION).to(dtype)
    for key, component in components.items():
        built, library = _component(component, block)
        # Releasing each component before the next keeps the peak at the largest one.
        built.save_pretrained(folder / key)
        index[key] = [library, type(built).__name__]
    index |= {key: [None, None] for key in row.get("optional", ())}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def _rows() -> dict[str, Mapping[str, Any]]:
    return tomllib.loads(_TABLE.read_text("utf-8"))


def _component(component: Mapping[str, Any], block: torch.Tensor) -> tuple[Any, str]:
    """Return a component and the name of its library."""
    if "tokenizer" in component:
        return _TOKENIZERS[component["tokenizer"]](), "transformers"
    library = transformers if "config_class" in component else diffusers
    kind = getattr(library, component["class"])
    config = component.get("config", {})
    if component["class"].endswith("Scheduler"):
        return kind(**config), "diffusers"
    with torch.device("meta"):
        if "config_class" in component:
            network = kind(getattr(library, component["config_class"])(**config))
        else:
            network = kind(**config)
    network = network.to(block.dtype).to_empty(device="cpu")
    _fill(network, block)
    return network, library.__name__


def _fill(network: torch.nn.Module, block: torch.Tensor) -> None:
    """Fill a network: gains are 1, biases 0, weights random."""
    with torch.no_grad():
        for at, (name, parameter) in enumerate(network.named_parameters()):
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim < 2 or "norm" in name:
                parameter.fill_(1)
            else:
                _repeat(parameter.view(-1), block.roll(at * 9973))
        for buffer in network.buffers():
            buffer.zero_()


def _repeat(target: torch.Tensor, block: torch.Tensor) -> None:
    for start in range(0, target.numel(), block.numel()):
        part = target[start : start + block.numel()]
        part.copy_(block[: part.numel()])
