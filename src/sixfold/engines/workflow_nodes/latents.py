"""Latents, models and conditionings as terms: what a node was, and what went into it.

Nothing is computed before a picture is asked for; then the whole term becomes one order for one of the
platform's models, so that a graph made for a real ComfyUI runs here unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sixfold.core.workflows.estimate import MOST
from sixfold.core.workflows.nodes import NodeSpec
from sixfold.core.workflows.ports import ListValue, NodeContext, Run

_CARRIED = """
    MODEL CLIP VAE CONDITIONING LATENT CONTROL_NET CLIP_VISION CLIP_VISION_OUTPUT STYLE_MODEL GLIGEN NOISE
    GUIDER SAMPLER SIGMAS UPSCALE_MODEL LATENT_UPSCALE_MODEL HOOKS HOOK_KEYFRAMES LATENT_OPERATION MODEL_PATCH
    PHOTOMAKER AUDIO_ENCODER AUDIO_ENCODER_OUTPUT TIMESTEPS_RANGE WAN_CAMERA_EMBEDDING LORA_MODEL
"""
SYMBOLIC = frozenset(_CARRIED.split())


@dataclass(frozen=True, slots=True)
class LatentTerm:
    """One output of a node that was not computed."""

    class_type: str
    inputs: Mapping[str, Any]
    slot: int = 0

    def parents(self, *names: str) -> Iterator[LatentTerm]:
        """The terms that went into it; those of the inputs named, or all."""
        for name, value in self.inputs.items():
            if isinstance(value, LatentTerm) and (not names or name in names):
                yield value

    def line(self, *names: str) -> Iterator[LatentTerm]:
        """It and what it was made of, nearest first; through the inputs named where there are any."""
        seen: set[int] = set()
        queue: list[LatentTerm] = [self]
        for term in queue:
            if id(term) not in seen:
                seen.add(id(term))
                yield term
                queue += term.parents(*names)


def recorder(spec: NodeSpec) -> Run:
    """A node that only remembers what it was given; a list that it gives is one of one term."""

    def record(_context: NodeContext, **inputs: Any) -> tuple[Any, ...]:
        given = [LatentTerm(spec.class_type, inputs, slot) for slot in range(len(spec.outputs))]
        return tuple(
            ListValue((term,)) if output.is_list else term
            for term, output in zip(given, spec.outputs, strict=True)
        )

    return record


# -- reading -------------------------------------------------------------------------------------

_TEXTS = ("text", "prompt", "text_g", "text_l", "clip_l", "clip_g", "t5xxl", "llama", "bert", "mt5xl", "tags")
_LOADERS = ("ckpt_name", "unet_name")
_FILM = 81  # frames of a film whose length only the run will know
_SAMPLERS = frozenset({"KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced"})
_LATENT = ("latent_image", "samples", "latent", "latents", "samples1", "samples_to", "destination")
_PICTURES = ("start_image", "image", "reference_image", "ref_image", "pixels")
_ALIGNED = ("positive", "negative")  # conditionings that a class gives in this order


@dataclass(frozen=True, slots=True)
class LatentControl:
    """A picture (or a film's pictures) that leads another's lines, and how strongly."""

    image: Any
    strength: float


@dataclass(slots=True)
class LatentRequest:
    """What a latent would be, in the words of the platform's models."""

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
    loras: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    source: Any = None
    mask: Any = None
    control: LatentControl | None = None
    sampled: bool = False

    @property
    def anew(self) -> bool:
        """Whether nothing is left of the picture that it starts from."""
        return self.source is None or (self.denoise >= 1 and self.mask is None)


def read(latent: LatentTerm) -> LatentRequest:
    """What a latent would be."""
    wish = LatentRequest()
    sampler = next((each for each in latent.line(*_LATENT) if each.class_type in _SAMPLERS), None)
    if sampler is not None:
        _of_sampler(wish, sampler)
    _of_latents(wish, latent)
    return wish


def _of_sampler(wish: LatentRequest, sampler: LatentTerm) -> None:
    wish.sampled = True
    parts: dict[str, Any] = {}
    for term in sampler.line("guider", "noise", "sigmas", "sampler"):
        parts = {**term.inputs, **parts}
    number = {"seed": int, "steps": int, "cfg": float, "denoise": float}
    names = {"noise_seed": "seed", "cfg_conds": "cfg"}
    for name, value in parts.items():
        field_name = names.get(name, name)
        if field_name in number and isinstance(value, int | float):
            setattr(wish, field_name, number[field_name](value))
    if sampler.class_type == "KSamplerAdvanced" and wish.steps:
        begun = min(int(_number(parts.get("start_at_step"), 0)), wish.steps)
        wish.denoise = 1 - begun / wish.steps
    positive = parts.get("positive") or parts.get("conditioning") or parts.get("cond1")
    negative = parts.get("negative") or parts.get("cond2")
    wish.prompt, wish.negative = _words(positive, 0), _words(negative, 1)
    if isinstance(positive, LatentTerm):
        _of_conditioning(wish, positive)
    if isinstance(model := parts.get("model"), LatentTerm):
        _of_model(wish, model)


def _words(given: Any, side: int) -> str:
    """The texts of a conditioning; where a class gives both sides, the one that is meant."""
    said: list[str] = []
    queue: list[Any] = [given]
    for term in queue:
        if not isinstance(term, LatentTerm) or term.class_type == "ConditioningZeroOut":
            continue
        said += [term.inputs[name].strip() for name in _TEXTS if isinstance(term.inputs.get(name), str)]
        both = [term.inputs[name] for name in _ALIGNED if name in term.inputs]
        if len(both) == len(_ALIGNED):
            queue.append(both[term.slot if term.slot in (0, 1) else side])
        else:
            queue += [each for each in term.inputs.values() if _is_conditioning(each)]
    return ", ".join(dict.fromkeys(text for text in said if text))


def _is_conditioning(value: Any) -> bool:
    return isinstance(value, LatentTerm) and not value.class_type.endswith(
        ("Loader", "LoaderSimple", "SetLastLayer")
    )


def _of_conditioning(wish: LatentRequest, positive: LatentTerm) -> None:
    for term in positive.line(*_ALIGNED, "conditioning", "conditioning_1", "conditioning_2"):
        told = term.inputs
        if "control_net" in told and told.get("image") is not None and wish.control is None:
            wish.control = LatentControl(told["image"], _number(told.get("strength"), 1.0))
        if isinstance(told.get("frame_rate"), int | float):
            wish.fps = float(told["frame_rate"])
        if "pixels" in told and wish.source is None:
            wish.source, wish.mask = told["pixels"], told.get("mask")


def _of_model(wish: LatentRequest, model: LatentTerm) -> None:
    for term in model.line("model", "model1", "clip"):
        told = term.inputs
        name = next((str(told[key]) for key in _LOADERS if key in told), "")
        wish.checkpoint = wish.checkpoint or name
        if "lora_name" in told:
            wish.loras.append((str(told["lora_name"]), _number(told.get("strength_model"), 1.0)))


def _of_latents(wish: LatentRequest, latent: LatentTerm) -> None:
    """Size, length and pictures, from the end to the beginning; what comes later in the graph holds."""
    factor = 1.0
    for term in latent.line(*_LATENT):
        told = term.inputs
        if not wish.width and "width" in told and "height" in told and "x" not in told:
            wish.width, wish.height = (int(_number(told[side], 0)) for side in ("width", "height"))
        elif not wish.width and isinstance(told.get("scale_by"), int | float):
            factor *= float(told["scale_by"])
        if "length" in told and "batch_size" in told:
            wish.length = wish.length or int(_number(told["length"], _FILM))
        count = told.get("amount", told.get("batch_size"))
        wish.count = max(wish.count, int(_number(count, 1 if count is None else MOST)))
        wish.mask = told.get("mask") if wish.mask is None else wish.mask
        if wish.source is None:
            wish.source = next((told[name] for name in _PICTURES if told.get(name) is not None), None)
        if told.get("control_video") is not None and wish.control is None:
            wish.control = LatentControl(told["control_video"], _number(told.get("strength"), 1.0))
    wish.width, wish.height = round(wish.width * factor), round(wish.height * factor)


def _number(given: Any, otherwise: float) -> float:
    """A number; another where none is given, or where only the run will know it."""
    return given if isinstance(given, int | float) else otherwise
