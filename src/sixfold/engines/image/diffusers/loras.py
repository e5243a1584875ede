"""LoRAs on a loaded pipeline: put on for a task, off after it, kept at hand for the next."""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import sources

MOST = 4  # of one pipeline, at hand in memory

Chosen = tuple[tuple[str, float], ...]
"""Files with their weights, in order."""


class LoraLoader:
    """The LoRAs of one pipeline's components, which pipelines made by `from_pipe` share."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._names: OrderedDict[str, str] = OrderedDict()
        self._worn: Chosen = ()

    def wear(self, chosen: Chosen) -> None:
        """Count exactly these from now on; raises `EngineError` for a file that does not fit.

        After that error the pipeline is in doubt, and its owner drops it.
        """
        if chosen == self._worn:
            return
        if not chosen:
            self._pipeline.disable_lora()
            self._worn = ()
            return
        for file, _ in chosen:
            self._fetch(file)
        self._pipeline.enable_lora()
        self._pipeline.set_adapters(
            [self._names[file] for file, _ in chosen], [weight for _, weight in chosen]
        )
        self._worn = chosen
        self._forget({file for file, _ in chosen})

    def _fetch(self, file: str) -> None:
        if file in self._names:
            self._names.move_to_end(file)
            return
        if not hasattr(self._pipeline, "load_lora_weights"):
            raise EngineError(f"{type(self._pipeline).__name__} takes no LoRA.")
        path = Path(file)
        name = "lora_" + hashlib.blake2b(file.encode(), digest_size=6).hexdigest()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Already found a `peft_config`")  # several are what we want
                self._load(path, name)
        except (ValueError, KeyError, RuntimeError, OSError, IndexError, TypeError) as error:
            raise EngineError(f"The LoRA {path.stem} does not fit this model.") from error
        held = {known for names in self._pipeline.get_list_adapters().values() for known in names}
        if name not in held:
            raise EngineError(f"The LoRA {path.stem} does not fit this model: it has nothing of its layers.")
        self._names[file] = name

    def _load(self, path: Path, name: str) -> None:
        if not path.suffix:  # the library would take a file without the ending for a pickle
            self._pipeline.load_lora_weights(load_file(path), adapter_name=name)
            return
        self._pipeline.load_lora_weights(
            str(path.parent),
            weight_name=path.name,
            adapter_name=name,
            local_files_only=True,
            use_safetensors=True,
        )

    def _forget(self, needed: set[str]) -> None:
        for file in [file for file in self._names if file not in needed]:
            if len(self._names) <= MOST:
                return
            self._pipeline.delete_adapters(self._names.pop(file))


def resolved(listed: Sequence[tuple[str, float]], weights: Path | None) -> Chosen:
    """Files of these adapters: names under the weights' `loras` folder, or paths; looked at before use."""
    found: list[tuple[str, float]] = []
    for name, weight in listed:
        path = Path(name).expanduser()
        if not path.is_absolute() and weights is not None:
            path = weights / "loras" / name
        if path.suffix.lower() not in ("", ".safetensors"):  # a stored file has no ending; its header is read
            raise EngineError(f"{path.name} is no .safetensors file: only safetensors are loaded.")
        if not path.is_file():
            raise EngineError(f"There is no LoRA {path.name} on this machine.")
        sources.header(path)
        found.append((str(path), weight))
    return tuple(found)
