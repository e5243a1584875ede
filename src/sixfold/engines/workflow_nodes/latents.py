"""Latents, models and conditionings as symbolic terms that record a node and its inputs.

Nothing is computed until an image is decoded; then the whole term becomes one child request for one of the
platform's models. Graphs for ComfyUI therefore run unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sixfold.core.workflows.estimate import MAX_BATCH
from sixfold.core.workflows.nodes import NodeSpec
from sixfold.core.workflows.ports import ListValue, NodeContext, Run

_CARRIED = """
    MODEL CLIP VAE CONDITIONING LATENT CONTROL_NET CLIP_VISION CLIP_VISION_OUTPUT STYLE_MODEL GLIGEN NOISE
    GUIDER SAMPLER SIGMAS UPSCALE_MODEL LATENT_UPSCALE_MODEL HOOKS HOOK_KEYFRAMES LATENT_OPERATION MODEL_PATCH
    PHOTOMAKER AUDIO_ENCODER AUDIO_ENCODER_OUTPUT TIMESTEPS_RANGE WAN_CAMERA_EMBEDDING LORA_MODEL
"""
SYMBOLIC = frozenset(_CARRIED.split())


class LatentTerm(msgspec.Struct, frozen=True):
    """An output of a node that is recorded instead of computed."""

    class_type: str
    inputs: Mapping[str, Any]
    slot: int = 0

    def parents(self, *names: str) -> Iterator[LatentTerm]:
        """Yield the terms in the inputs with these names; without names, in all inputs."""
        for name, value in self.inputs.items():
            if isinstance(value, LatentTerm) and (not names or name in names):
                yield value

    def ancestry(self, *names: str) -> Iterator[LatentTerm]:
        """Yield the term and its ancestors, nearest first, through the inputs with these names (or all)."""
        seen: set[int] = set()
        queue: list[LatentTerm] = [self]
        for term in queue:
            if id(term) not in seen:
                seen.add(id(term))
                yield term
                queue += term.parents(*names)


def recorder(spec: NodeSpec) -> Run:
    """Return a run function that records its inputs; a list output consists of one term."""

    def record(_context: NodeContext, **inputs: Any) -> tuple[Any, ...]:
        terms = [LatentTerm(spec.class_type, inputs, slot) for slot in range(len(spec.outputs))]
        return tuple(
            ListValue((term,)) if output.is_list else term
            for term, output in zip(terms, spec.outputs, strict=True)
        )

    return record


# -- reading -------------------------------------------------------------------------------------

_TEXTS = ("text", "prompt", "text_g", "text_l", "clip_l", "clip_g", "t5xxl", "llama", "bert", "mt5xl", "tags")
_LOADERS = ("ckpt_name", "unet_name")
_DEFAULT_FRAMES = 81  # the assumed length of a video that is known only during the run
_SAMPLERS = frozenset({"KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced"})
_LATENT = ("latent_image", "samples", "latent", "latents", "samples1", "samples_to", "destination")
_IMAGES = ("start_image", "image", "reference_image", "ref_image", "pixels")
_ALIGNED = ("positive", "negative")  # conditionings that a class returns in this order


class LatentControl(msgspec.Struct, frozen=True):
    """An image or video frames whose lines guide another image, and the strength of the guidance."""

    image: Any
    strength: float


class LatentRequest(msgspec.Struct):
    """The inputs of the platform's models that correspond to a latent."""

    prompt: str = ""
    negative: str = ""
    seed: int = 0
    steps: int = 20
    cfg: float = 7.0
    denoise: float = 1.0
    width: int = 0
    height: int = 0
    count: int = 1
    length: int = 0
    fps: float = 24.0
    checkpoint: str = ""
    loras: list[tuple[str, float]] = []
    source: Any = None
    mask: Any = None
    control: LatentControl | None = None
    sampled: bool = False

    @property
    def from_scratch(self) -> bool:
        """Whether the output does not depend on a source image."""
        return self.source is None or (self.denoise >= 1 and self.mask is None)


def read(latent: LatentTerm) -> LatentRequest:
    request = LatentRequest()
    sampler = next((each for each in latent.ancestry(*_LATENT) if each.class_type in _SAMPLERS), None)
    if sampler is not None:
        _read_sampler(request, sampler)
    _read_latents(request, latent)
    return request


def _read_sampler(request: LatentRequest, sampler: LatentTerm) -> None:
    request.sampled = True
    parts: dict[str, Any] = {}
    for term in sampler.ancestry("guider", "noise", "sigmas", "sampler"):
        parts = {**term.inputs, **parts}
    number = {"seed": int, "steps": int, "cfg": float, "denoise": float}
    names = {"noise_seed": "seed", "cfg_conds": "cfg"}
    for name, value in parts.items():
        field_name = names.get(name, name)
        if field_name in number and isinstance(value, int | float):
            setattr(request, field_name, number[field_name](value))
    if sampler.class_type == "KSamplerAdvanced" and request.steps:
        start = min(int(_number(parts.get("start_at_step"), 0)), request.steps)
        request.denoise = 1 - start / request.steps
    positive = parts.get("positive") or parts.get("conditioning") or parts.get("cond1")
    negative = parts.get("negative") or parts.get("cond2")
    request.prompt, request.negative = _texts(positive, 0), _texts(negative, 1)
    if isinstance(positive, LatentTerm):
        _read_conditioning(request, positive)
    if isinstance(model := parts.get("model"), LatentTerm):
        _read_model(request, model)


def _texts(conditioning: Any, side: int) -> str:
    """Return the texts of a conditioning; `side` is 0 for positive and 1 for negative."""
    texts: list[str] = []
    queue: list[Any] = [conditioning]
    for term in queue:
        if not isinstance(term, LatentTerm) or term.class_type == "ConditioningZeroOut":
            continue
        texts += [term.inputs[name].strip() for name in _TEXTS if isinstance(term.inputs.get(name), str)]
        both = [term.inputs[name] for name in _ALIGNED if name in term.inputs]
        if len(both) == len(_ALIGNED):
            queue.append(both[term.slot if term.slot in (0, 1) else side])
        else:
            queue += [node_input for node_input in term.inputs.values() if _is_conditioning(node_input)]
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _is_conditioning(value: Any) -> bool:
    return isinstance(value, LatentTerm) and not value.class_type.endswith(
        ("Loader", "LoaderSimple", "SetLastLayer")
    )


def _read_conditioning(request: LatentRequest, positive: LatentTerm) -> None:
    for term in positive.ancestry(*_ALIGNED, "conditioning", "conditioning_1", "conditioning_2"):
        inputs = term.inputs
        if "control_net" in inputs and inputs.get("image") is not None and request.control is None:
            request.control = LatentControl(inputs["image"], _number(inputs.get("strength"), 1.0))
        if isinstance(inputs.get("frame_rate"), int | float):
            request.fps = float(inputs["frame_rate"])
        if "pixels" in inputs and request.source is None:
            request.source, request.mask = inputs["pixels"], inputs.get("mask")


def _read_model(request: LatentRequest, model: LatentTerm) -> None:
    for term in model.ancestry("model", "model1", "clip"):
        inputs = term.inputs
        name = next((str(inputs[key]) for key in _LOADERS if key in inputs), "")
        request.checkpoint = request.checkpoint or name
        if "lora_name" in inputs:
            request.loras.append((str(inputs["lora_name"]), _number(inputs.get("strength_model"), 1.0)))


def _read_latents(request: LatentRequest, latent: LatentTerm) -> None:
    """Set size, length and images from the end of the graph to its start; later nodes take precedence."""
    factor = 1.0
    for term in latent.ancestry(*_LATENT):
        inputs = term.inputs
        if not request.width and "width" in inputs and "height" in inputs and "x" not in inputs:
            request.width, request.height = (int(_number(inputs[side], 0)) for side in ("width", "height"))
        elif not request.width and isinstance(inputs.get("scale_by"), int | float):
            factor *= float(inputs["scale_by"])
        if "length" in inputs and "batch_size" in inputs:
            request.length = request.length or int(_number(inputs["length"], _DEFAULT_FRAMES))
        count = inputs.get("amount", inputs.get("batch_size"))
        request.count = max(request.count, int(_number(count, 1 if count is None else MAX_BATCH)))
        request.mask = inputs.get("mask") if request.mask is None else request.mask
        if request.source is None:
            request.source = next((inputs[name] for name in _IMAGES if inputs.get(name) is not None), None)
        if inputs.get("control_video") is not None and request.control is None:
            request.control = LatentControl(inputs["control_video"], _number(inputs.get("strength"), 1.0))
    request.width, request.height = round(request.width * factor), round(request.height * factor)


def _number(value: Any, default: float) -> float:
    """Return a number, or the default for a value that is missing or known only during the run."""
    return value if isinstance(value, int | float) else default
