"""Builds pipelines from sources, offline, and keeps as many as memory allows."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import huggingface_hub.constants
import torch
import transformers
from diffusers.loaders.single_file_utils import SingleFileComponentError
from safetensors import SafetensorError

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import placement, profiles, sources
from sixfold.engines.image.diffusers.loras import LoraLoader
from sixfold.engines.image.diffusers.options import DiffusersOptions
from sixfold.engines.image.diffusers.placement import Device, Offload
from sixfold.engines.image.diffusers.profiles import ModelProfile
from sixfold.engines.image.diffusers.sources import WeightSource

_library: Any = diffusers  # it makes its names when they are asked for

# What these libraries raise for weights and configurations that do not fit each other.
UNFIT = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
    SafetensorError,
    SingleFileComponentError,
)


@dataclass(slots=True)
class LoadedPipeline:
    """One pipeline with everything that was made from it; they share their components."""

    source: WeightSource
    pipeline: Any
    profile: ModelProfile
    where: Device
    sizes: dict[str, int]
    offload: Offload
    adapters: LoraLoader
    rows: int
    tiled: bool = False
    controls: dict[str, Any] = field(default_factory=dict[str, Any])
    _made: dict[tuple[bool, str], Any] = field(default_factory=dict[tuple[bool, str], Any])
    _placed: Any = None

    @property
    def bytes(self) -> int:
        """What it takes where it runs."""
        return sum(self.sizes.values()) if self.offload == "none" else max(self.sizes.values(), default=0)

    def pipeline_for(self, *, image: bool, control: str = "") -> Any:
        """The pipeline for an image from text or from an image, led by a ControlNet or not."""
        return self.through((image, control), lambda: self._make(image, control))

    def through(self, key: tuple[bool, str], make: Callable[[], Any]) -> Any:
        """A pipeline of the same components, made once and placed where it runs."""
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = make()
        if self._placed is not made and self.offload != "none":
            placement.place(made, self.where, self.offload)  # hooks belong to one pipeline at a time
        self._placed = made
        return made

    def _make(self, image: bool, control: str) -> Any:
        if not image and not control:
            return self.pipeline
        auto = _library.AutoPipelineForImage2Image if image else _library.AutoPipelineForText2Image
        parts = {"controlnet": self.controls[control]} if control else {}
        try:
            made = auto.from_pipe(self.pipeline, **parts)
        except ValueError as error:
            what = "be led by a control picture" if control else "start from a picture"
            raise EngineError(f"{type(self.pipeline).__name__} cannot {what}.") from error
        made.set_progress_bar_config(disable=True)
        return made

    def harder(self) -> bool:
        """Keep less on the device from now on; False when there is nothing left to do."""
        if self.where.kind != "cpu" and self.offload in placement.HARDER:
            self.offload = placement.HARDER[self.offload]
            self._placed = None
            return True
        if not self.tiled:
            self.tiled = True
            return True
        return False


class PipelineCache:
    """Loaded pipelines, the least recently used one first; memory decides how many."""

    def __init__(self, options: DiffusersOptions) -> None:
        _quiet()
        self.options = options
        self.where = placement.device(options)
        if options.threads:
            torch.set_num_threads(options.threads)
        self._loaded: OrderedDict[str, LoadedPipeline] = OrderedDict()
        self._sources: dict[str, tuple[WeightSource, tuple[int, int] | None]] = {}

    @property
    def loaded(self) -> Mapping[str, LoadedPipeline]:
        """What is at hand, the least recently used first."""
        return self._loaded

    def get(self, name: str) -> LoadedPipeline:
        """The pipeline of a source's name; loads it, and drops others for it, where it must."""
        source = self._source(name)
        loaded = self._loaded.get(source.key)
        if loaded is None:
            loaded = self._load(source)
            self._loaded[source.key] = loaded
        self._loaded.move_to_end(source.key)
        return loaded

    def _source(self, name: str) -> WeightSource:
        """A name's source, looked at anew only when its folder is another: that reads every header."""
        known = self._sources.get(name)
        if known is not None and _mark(known[0].folder) == known[1]:
            return known[0]
        if known is not None:  # replaced or removed meanwhile
            self._loaded.pop(known[0].key, None)
            placement.release(self.where.kind)
        source = sources.find(name, self.options.weights, self.options.hub_cache)
        self._sources[name] = (source, _mark(source.folder))
        return source

    def drop(self, loaded: LoadedPipeline) -> None:
        """Forget a pipeline and give its memory back."""
        self._loaded.pop(loaded.source.key, None)
        del loaded
        placement.release(self.where.kind)

    def control(self, loaded: LoadedPipeline, kind: str) -> None:
        """Have the ControlNet of this kind at hand for a pipeline."""
        if kind in loaded.controls:
            return
        folder = self._control_folder(loaded, kind)
        sources.check_component(folder, folder.name)
        try:
            control = _library.ControlNetModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, dtype=self.where.dtype
            )
        except UNFIT as error:
            raise EngineError(f"The ControlNet {folder.name} could not be loaded: {error}") from error
        loaded.controls[kind] = control.to(self.where.torch) if loaded.offload == "none" else control
        numbers = sum(parameter.numel() for parameter in control.parameters())
        loaded.sizes[f"controlnet {kind}"] = numbers * self.where.item_bytes

    def _control_folder(self, loaded: LoadedPipeline, kind: str) -> Path:
        """The operator's ControlNet of this kind, or an added one that was made for such a pipeline."""
        weights = self.options.weights
        if name := self.options.controls.get(kind):
            folder = Path(name).expanduser()
            return weights / name if weights is not None and not folder.is_absolute() else folder
        network = getattr(loaded.pipeline, "unet", None)
        width = None if network is None else network.config.get("cross_attention_dim")
        for folder in sources.controls(weights, kind) if weights is not None else ():
            if sources.read_json(folder / "config.json").get("cross_attention_dim") == width:
                return folder
        raise EngineError(f"This server has no ControlNet for {kind} that fits {loaded.source.name}.")

    def _load(self, source: WeightSource) -> LoadedPipeline:
        sizes = sources.sizes(source, self.where.item_bytes)
        self._make_room(sum(sizes.values()))
        free = self._free()
        how = placement.offload(sizes, self.where, free, self.options.offload)
        pipeline = _read(source, self.where.dtype)
        pipeline.set_progress_bar_config(disable=True)
        try:
            placement.place(pipeline, self.where, how)
        except torch.OutOfMemoryError:
            how = placement.HARDER.get(how, how)
            placement.release(self.where.kind)
            placement.place(pipeline, self.where, how)
        chosen = {"steps": self.options.steps, "guidance": self.options.guidance}
        given = source.record.get("sampling", {}) | {name: n for name, n in chosen.items() if n is not None}
        profile = profiles.of(pipeline, given)
        loaded = LoadedPipeline(
            source, pipeline, profile, self.where, sizes, how, LoraLoader(pipeline), max(1, self.options.rows)
        )
        loaded._placed = pipeline
        return loaded

    def _make_room(self, needed: int) -> None:
        while self._loaded and needed > self._free():
            _, oldest = self._loaded.popitem(last=False)
            del oldest
            placement.release(self.where.kind)

    def _free(self) -> int:
        """Bytes that one more pipeline may take: within the budget, and within what the device has."""
        free = placement.free_bytes(self.where.kind)
        if self.options.budget_bytes:
            free = min(free, self.options.budget_bytes - sum(one.bytes for one in self._loaded.values()))
        return free


def _mark(folder: Path) -> tuple[int, int] | None:
    """What changes when a folder is replaced; None when it is gone."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def _quiet() -> None:
    """No progress bars, no advice, no network: these libraries speak to people at a notebook."""
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.set_verbosity_error()
        library.disable_progress_bar()


def _read(source: WeightSource, dtype: torch.dtype) -> Any:
    """A pipeline on the processor; raises `EngineError` with what the library could not fit together."""
    options = {"dtype": dtype, "local_files_only": True}
    try:
        if source.file is not None:
            sources.header(source.file)
            index = sources.read_json(source.folder / sources.INDEX)
            pipeline_class = getattr(_library, str(index.get("_class_name")))
            return pipeline_class.from_single_file(str(source.file), config=str(source.folder), **options)
        return _library.DiffusionPipeline.from_pretrained(
            source.folder, use_safetensors=True, variant=sources.variant(source.folder), **options
        )
    except UNFIT as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(f"The weights {source.name} could not be loaded: {reason}") from error
