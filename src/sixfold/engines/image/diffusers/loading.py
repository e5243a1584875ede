"""Offline loading of pipelines, and a cache of as many as fit in memory."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import diffusers
import huggingface_hub.constants
import msgspec
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

# Typed as Any because the library creates its names lazily.
_library: Any = diffusers

# Exceptions that these libraries raise for weights and configurations that do not match.
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


class LoadedPipeline(msgspec.Struct):
    """A pipeline and the pipelines derived from it, which share its components."""

    source: WeightSource
    pipeline: Any
    profile: ModelProfile
    where: Device
    sizes: dict[str, int]
    offload: Offload
    adapters: LoraLoader
    rows: int
    tiled: bool = False
    controls: dict[str, Any] = {}
    _derived: dict[Hashable, Any] = {}
    _placed: Any = None

    @property
    def bytes(self) -> int:
        """The memory in bytes that the pipeline occupies on its device."""
        return sum(self.sizes.values()) if self.offload == "none" else max(self.sizes.values(), default=0)

    def pipeline_for(self, *, image: bool, mask: bool = False, control: str = "") -> Any:
        """Return the text-to-image, image-to-image or inpainting pipeline, with or without a ControlNet."""
        return self.derive((image, mask, control), lambda: self._make(image, mask, control))

    def derive(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the derived pipeline for `key`, created once with `make` and placed on the device."""
        derived = self._derived.get(key)
        if derived is None:
            derived = self._derived[key] = make()
        if self._placed is not derived and self.offload != "none":
            # The hooks belong to one pipeline at a time.
            placement.place(derived, self.where, self.offload)
        self._placed = derived
        return derived

    def _make(self, image: bool, mask: bool, control: str) -> Any:
        if not image and not control:
            return self.pipeline
        auto = _library.AutoPipelineForImage2Image if image else _library.AutoPipelineForText2Image
        auto = _library.AutoPipelineForInpainting if mask else auto
        parts = {"controlnet": self.controls[control]} if control else {}
        try:
            derived = auto.from_pipe(self.pipeline, **parts)
        except ValueError as error:
            feature = "control images" if control else "masks" if mask else "source images"
            raise EngineError(f"{type(self.pipeline).__name__} does not support {feature}.") from error
        derived.set_progress_bar_config(disable=True)
        return derived

    def offload_more(self) -> bool:
        """Reduce the memory used on the device; return False if no further reduction is possible."""
        if self.where.kind != "cpu" and self.offload in placement.NEXT_OFFLOAD:
            self.offload = placement.NEXT_OFFLOAD[self.offload]
            self._placed = None
            return True
        if not self.tiled:
            self.tiled = True
            return True
        return False


class PipelineCache:
    """Loaded pipelines in order of use; the least recently used are dropped when memory runs out."""

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
        """Cached pipelines by source, least recently used first."""
        return self._loaded

    def get(self, name: str) -> LoadedPipeline:
        """Return the pipeline of a source, loading it if necessary; other pipelines may be dropped."""
        source = self._source(name)
        loaded = self._loaded.get(source.key)
        if loaded is None:
            loaded = self._load(source)
            self._loaded[source.key] = loaded
        self._loaded.move_to_end(source.key)
        return loaded

    def _source(self, name: str) -> WeightSource:
        """Return the source of a name; its headers are reread only if its folder has changed."""
        cached = self._sources.get(name)
        if cached is not None and _mark(cached[0].folder) == cached[1]:
            return cached[0]
        if cached is not None:
            # The folder was replaced or removed since it was loaded.
            self._loaded.pop(cached[0].key, None)
            placement.release(self.where.kind)
        source = sources.find(name, self.options.weights, self.options.hub_cache)
        self._sources[name] = (source, _mark(source.folder))
        return source

    def drop(self, loaded: LoadedPipeline) -> None:
        """Remove a pipeline and release its memory."""
        self._loaded.pop(loaded.source.key, None)
        del loaded
        placement.release(self.where.kind)

    def control(self, loaded: LoadedPipeline, kind: str) -> None:
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
        """Return the configured ControlNet of this kind, or an installed one that fits the pipeline."""
        weights = self.options.weights
        if name := self.options.controls.get(kind):
            folder = Path(name).expanduser()
            return weights / name if weights is not None and not folder.is_absolute() else folder
        network = getattr(loaded.pipeline, "unet", None)
        width = None if network is None else network.config.get("cross_attention_dim")
        for folder in sources.added_controls(weights, kind) if weights is not None else ():
            if sources.read_json(folder / "config.json").get("cross_attention_dim") == width:
                return folder
        raise EngineError(
            f"This server does not have a ControlNet for {kind} that fits {loaded.source.name}: install one "
            "with `sixfold engines add`."
        )

    def _load(self, source: WeightSource) -> LoadedPipeline:
        sizes = sources.sizes(source, self.where.item_bytes)
        self._evict(sum(sizes.values()))
        free = self._free()
        how = placement.offload(sizes, self.where, free, self.options.offload)
        pipeline = _read(source, self.where.dtype)
        pipeline.set_progress_bar_config(disable=True)
        try:
            placement.place(pipeline, self.where, how)
        except torch.OutOfMemoryError:
            how = placement.NEXT_OFFLOAD.get(how, how)
            placement.release(self.where.kind)
            placement.place(pipeline, self.where, how)
        overrides = {"steps": self.options.steps, "guidance": self.options.guidance}
        settings = source.record.get("sampling", {}) | {
            name: n for name, n in overrides.items() if n is not None
        }
        profile = profiles.profile_of(pipeline, settings)
        loaded = LoadedPipeline(
            source, pipeline, profile, self.where, sizes, how, LoraLoader(pipeline), max(1, self.options.rows)
        )
        loaded._placed = pipeline
        return loaded

    def _evict(self, needed: int) -> None:
        while self._loaded and needed > self._free():
            _, oldest = self._loaded.popitem(last=False)
            del oldest
            placement.release(self.where.kind)

    def _free(self) -> int:
        """Return the bytes that one more pipeline may use, within the budget and the device's memory."""
        free = placement.free_bytes(self.where.kind)
        if self.options.budget_bytes:
            free = min(
                free, self.options.budget_bytes - sum(pipeline.bytes for pipeline in self._loaded.values())
            )
        return free


def _mark(folder: Path) -> tuple[int, int] | None:
    """Return a value that changes when the folder is replaced, or None if it does not exist."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def _quiet() -> None:
    """Disable progress bars, advice and network access of the libraries."""
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.set_verbosity_error()
        library.disable_progress_bar()


def _read(source: WeightSource, dtype: torch.dtype) -> Any:
    """Load a pipeline on the CPU; raises `EngineError` with the library's reason."""
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
