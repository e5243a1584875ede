"""LoRAs on a loaded pipeline: activated for a task, deactivated after it, and cached for the next."""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import sources

# Maximum number of LoRAs cached for one pipeline.
MAX_CACHED = 4

# Files with their weights, in order.
LoraWeights = tuple[tuple[str, float], ...]


class LoraLoader:
    """The LoRAs of one pipeline's components, which pipelines created by `from_pipe` share."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._names: OrderedDict[str, str] = OrderedDict()
        self._active: LoraWeights = ()

    def activate(self, weights: LoraWeights) -> None:
        """Activate exactly these LoRAs; raises `EngineError` for a file that does not fit.

        After this error, the pipeline's state is undefined and the caller must drop it.
        """
        if weights == self._active:
            return
        if not weights:
            self._pipeline.disable_lora()
            self._active = ()
            return
        for file, _ in weights:
            self._load_once(file)
        self._pipeline.enable_lora()
        self._pipeline.set_adapters(
            [self._names[file] for file, _ in weights], [weight for _, weight in weights]
        )
        self._active = weights
        self._evict({file for file, _ in weights})

    def _load_once(self, file: str) -> None:
        if file in self._names:
            self._names.move_to_end(file)
            return
        if not hasattr(self._pipeline, "load_lora_weights"):
            raise EngineError(f"{type(self._pipeline).__name__} does not support LoRAs.")
        path = Path(file)
        name = "lora_" + hashlib.blake2b(file.encode(), digest_size=6).hexdigest()
        try:
            with warnings.catch_warnings():
                # Several LoRAs on one pipeline are intended.
                warnings.filterwarnings("ignore", "Already found a `peft_config`")
                self._load(path, name)
        except (ValueError, KeyError, RuntimeError, OSError, IndexError, TypeError) as error:
            raise EngineError(f"The LoRA {path.stem} does not fit this model.") from error
        adapters = {adapter for names in self._pipeline.get_list_adapters().values() for adapter in names}
        if name not in adapters:
            raise EngineError(f"The LoRA {path.stem} does not fit this model: none of its layers match.")
        self._names[file] = name

    def _load(self, path: Path, name: str) -> None:
        from safetensors.torch import load_file  # the rest of this module works without the extra

        if not path.suffix:
            # The library treats a file without a suffix as a pickle.
            self._pipeline.load_lora_weights(load_file(path), adapter_name=name)
            return
        self._pipeline.load_lora_weights(
            str(path.parent),
            weight_name=path.name,
            adapter_name=name,
            local_files_only=True,
            use_safetensors=True,
        )

    def _evict(self, needed: set[str]) -> None:
        for file in [file for file in self._names if file not in needed]:
            if len(self._names) <= MAX_CACHED:
                return
            self._pipeline.delete_adapters(self._names.pop(file))


def resolve(adapters: Sequence[tuple[str, float]], weights: Path | None) -> LoraWeights:
    """Return the paths of LoRAs, given by name or by path, after checking their headers.

    A name refers to a file in the weights' `loras` folder.
    """
    paths: list[tuple[str, float]] = []
    for name, weight in adapters:
        path = Path(name).expanduser()
        if not path.is_absolute() and weights is not None:
            path = weights / "loras" / name
        # Stored media files have no suffix; their header is checked below.
        if path.suffix.lower() not in ("", ".safetensors"):
            raise EngineError(f"{path.name} is not a .safetensors file: only safetensors files are loaded.")
        if not path.is_file():
            raise EngineError(f"LoRA {path.name} not found on this machine.")
        sources.header(path)
        paths.append((str(path), weight))
    return tuple(paths)
