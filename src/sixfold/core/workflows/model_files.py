"""The model files that a graph names: kind, folder, and download URLs from its workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.nodes import Graph, Registry

# The kind of each folder in the API; any other folder counts as a checkpoint.
KINDS = {
    "checkpoints": "checkpoint",
    "loras": "lora",
    "diffusion_models": "unet",
    "text_encoders": "clip",
    "clip_vision": "clip",
    "vae": "vae",
    "controlnet": "controlnet",
    "upscale_models": "upscaler",
    "latent_upscale_models": "upscaler",
}
_FILE = (".safetensors", ".ckpt", ".pt", ".pth", ".gguf", ".bin", ".onnx", ".sft")


class ModelFileRef(msgspec.Struct, frozen=True):
    """A model file that a graph names; `folder` is ComfyUI's name for its folder."""

    file: str
    folder: str
    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the file as shown in the API."""
        return KINDS.get(self.folder, "checkpoint")


def find(
    graph: Graph, registry: Registry, rows: Iterable[Mapping[str, Any]] = ()
) -> tuple[ModelFileRef, ...]:
    """Return every model file of a graph once; `rows` are the files listed in the source workflow."""
    sources: dict[str, tuple[str, ...]] = {}
    for row in rows:
        url = str(row.get("url") or "")
        if url.startswith("https://"):
            sources.setdefault(str(row.get("name")), (url,))
    urls: dict[tuple[str, str], list[str]] = {}
    for node_id, node in graph.items():
        spec = registry.get(str(node["class_type"]))
        for name, value in mapping(node.get("inputs")).items():
            spec_input = spec.by_name.get(name) if spec else None
            folder = str(spec_input.options.get("folder") or "") if spec_input else ""
            if isinstance(value, str) and value and (folder or (spec is None and value.endswith(_FILE))):
                urls.setdefault((value, folder), []).append(node_id)
    return tuple(
        ModelFileRef(file, folder, tuple(nodes), sources.get(file, ()))
        for (file, folder), nodes in urls.items()
    )
