"""Nodes whose work one of the platform's models does: the order, and how its output is taken.

A row says both: `ask` makes the order from the node's inputs, with what it needs of the context; `take` makes
the node's outcome of what the model gave. The order's estimate is the same `ask`, on what is known before.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sixfold.core import json_decoding
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.estimate import UnknownCost
from sixfold.core.workflows.ports import (
    ChildRequest,
    NodeArtifact,
    NodeChild,
    NodeContext,
    NodeFile,
    NodeInputs,
    Run,
)
from sixfold.engines.audio import effects
from sixfold.engines.audio import files as sounds
from sixfold.engines.workflow_nodes import audio, images, sampling, values
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import AudioValue, FramesValue, VideoValue
from sixfold.errors import EngineUnavailable

_SEEDS = 2**31
_EFFECTS = "sound-effects"
CLONING = (
    "Cloning a voice needs a recording of it in `voice_sample` and weights: run `pip install chatterbox-tts` "
    "and set `source` in `[engines.weights-clone]` of sixfold.toml to the folder of its weights."
)
_UNKNOWN_SOUND = (
    "No engine on this server makes the sound that the prompt describes; set `model` to another model, "
    "which `GET /api/services` lists."
)
Ask = Callable[[Mapping[str, Any]], ChildRequest]
Take = Callable[[NodeContext, NodeChild, Mapping[str, Any]], NodeInputs]
_FILM_TYPES = ("video/mp4", "video/webm", "video/quicktime")


@dataclass(frozen=True, slots=True)
class HostedNodes:
    """One class: its order, and what becomes of the model's answer."""

    ask: Ask
    take: Take

    def estimate(self, inputs: Mapping[str, Any]) -> tuple[ChildRequest, ...]:
        """What the node will order, as far as its inputs are known."""
        return (self.ask(inputs),)

    async def run(self, context: NodeContext, **inputs: Any) -> NodeInputs:
        """Order, wait, take."""
        ready = {name: await asyncio.to_thread(_sendable, context, value) for name, value in inputs.items()}
        child = await context.child(self.ask(ready))
        return await asyncio.to_thread(self.take, context, child, inputs)


def _sendable(context: NodeContext, value: Any) -> Any:
    """A picture, a sound or a film as a file; anything else as it is."""
    match value:
        case VideoValue(file):
            return file
        case AudioValue():
            return audio.file(context, value)
        case FramesValue(frames, _, _):
            return values.file(context, frames)
        case _ if hasattr(value, "shape"):
            return values.file(context, value)
    return value


def _given(**inputs: Any) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


def _seed(inputs: Mapping[str, Any]) -> int | UnknownCost:
    return _as(lambda seed: int(seed) % _SEEDS, inputs.get("seed") or 0)


def _as(kind: Callable[[Any], Any], value: Any) -> Any:
    """A value as its kind; what only the run knows stays unknown."""
    return value if isinstance(value, UnknownCost) else kind(value)


def _strength(inputs: Mapping[str, Any]) -> Any:
    given = inputs.get("strength", inputs.get("conditioning_scale", 0.6))
    return _as(lambda strength: max(0.01, min(float(strength), 1.0)), given)


def _named(model: Any, otherwise: str) -> str:
    """The model that a node orders; its price has to be known before the run."""
    if isinstance(model, UnknownCost):
        raise UnusableInput("which model does the work has to be known before the run")
    return str(model or otherwise)


# -- orders --------------------------------------------------------------------------------------


def _text_to_image(inputs: Mapping[str, Any]) -> ChildRequest:
    sizes = {name: _as(int, inputs[name]) for name in ("width", "height", "steps")}
    words = {name: _as(str, inputs.get(name) or "") for name in ("prompt", "negative_prompt")}
    return ChildRequest(sampling.IMAGE, {**words, **sizes, "seed": _seed(inputs)})


def _restyle(inputs: Mapping[str, Any]) -> ChildRequest:
    told = _given(
        style_prompt=inputs.get("prompt"),
        strength=_strength(inputs),
        steps=inputs.get("steps"),
        guidance=inputs.get("guidance_scale"),
        source_image_url=inputs.get("image"),
    )
    return ChildRequest(sampling.RESTYLE, {**told, "seed": _seed(inputs)})


def _upscale(inputs: Mapping[str, Any]) -> ChildRequest:
    model = inputs.get("upscale_model")
    name = str(getattr(model, "inputs", {}).get("model_name", "")).lower()
    told = {
        "scale": 2 if "x2" in name or "2x" in name else 4,
        "model": "anime" if "anime" in name else "general",
    }
    return ChildRequest("upscaler", {**told, **_given(image=inputs.get("image"))})


def _transcribe(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest("stt", _given(audio_url=inputs.get("audio"), language=inputs.get("language") or None))


def _speak(inputs: Mapping[str, Any]) -> ChildRequest:
    sample, words = inputs.get("voice_sample"), inputs.get("sample_text")
    if isinstance(words, str) and words.strip() and sample is None:
        raise EngineUnavailable(CLONING)
    return ChildRequest("tts-a", {"input": _as(str, inputs.get("text") or ""), **_given(voice_sample=sample)})


def _effects(inputs: Mapping[str, Any]) -> ChildRequest:
    prompt, model = inputs.get("prompt"), _named(inputs.get("model"), _EFFECTS)
    if model == _EFFECTS and isinstance(prompt, str) and not effects.known(prompt):
        raise EngineUnavailable(_UNKNOWN_SOUND)
    told = {"prompt": prompt, "duration_seconds": inputs.get("duration_seconds")}
    return ChildRequest(model, told)


def _text_to_3d(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(_named(inputs.get("model"), "text-to-3d"), {"prompt": inputs.get("prompt")})


def _image_to_3d(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(_named(inputs.get("model"), "image-to-3d-voxel"), _given(image=inputs.get("image")))


def _template(inputs: Mapping[str, Any]) -> ChildRequest:
    template, given = _named(inputs.get("template"), "").removeprefix("template:"), inputs.get("input")
    linked = _given(**{name: inputs.get(name) for name in ("image", "mask", "audio", "video")})
    if isinstance(given, UnknownCost):
        return ChildRequest(template, linked, open=True)
    try:
        told = json_decoding.decode_whole(str(given or "{}"))
    except (ValueError, RecursionError):
        raise UnusableInput("the template's input is no JSON; its numbers must be finite") from None
    if not isinstance(told, dict):
        raise UnusableInput("the template's input is no JSON object")
    return ChildRequest(template, {**mapping(told), **linked})


# -- answers -------------------------------------------------------------------------------------


def _first(child: NodeChild) -> NodeFile:
    if not child.files:
        raise EngineError("the model gave no file")
    return child.files[0]


def _picture(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeInputs:
    return NodeInputs((values.read(_first(child).path)[0],))


def _ruled(_context: NodeContext, child: NodeChild, inputs: Mapping[str, Any]) -> NodeInputs:
    """A repainted picture that keeps the source's lines."""
    source = values.frames(inputs["image"])[:1]
    made = scaled(values.read(_first(child).path)[0], source.shape[2], source.shape[1], "lanczos")
    lines = images.canny(_context, source, 0.2, 0.5)[0]
    strength = float(inputs.get("strength", inputs.get("conditioning_scale", 0.6)))
    return NodeInputs((sampling.led(made, lines, strength),))


def _sound(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeInputs:
    return NodeInputs((AudioValue(sounds.read(_first(child).path, 3600), sounds.RATE),))


def _text(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeInputs:
    return NodeInputs((str(child.data.get("text", "")),))


def _model_file(context: NodeContext, child: NodeChild, inputs: Mapping[str, Any]) -> NodeInputs:
    file = _first(child)
    return NodeInputs((file.digest,), made=(_kept(context, file, "3d", str(inputs.get("model") or "mesh")),))


def _anything(context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeInputs:
    """What a template gave: its first picture, sound and film, and its data as text; all files are shown."""
    outputs: list[Any] = [None, None, None, json.dumps(child.data, ensure_ascii=False) if child.data else ""]
    made: list[NodeArtifact] = []
    for file in child.files:
        kind = file.content_type.partition("/")[0]
        if kind == "image" and outputs[0] is None and file.content_type != "image/svg+xml":
            outputs[0] = values.read(file.path)[0]
        elif kind == "audio" and outputs[1] is None:
            outputs[1] = AudioValue(sounds.read(file.path, 3600), sounds.RATE)
        elif file.content_type in _FILM_TYPES and outputs[2] is None:
            outputs[2] = VideoValue(file)
        made.append(_kept(context, file, _KINDS.get(kind, "3d" if kind == "model" else "files"), "template"))
    ui = {"text": (outputs[3],)} if outputs[3] else {}
    return NodeInputs(tuple(outputs), tuple(made), ui)


_KINDS = {"image": "images", "video": "images", "audio": "audio"}


def _kept(context: NodeContext, file: NodeFile, kind: str, prefix: str) -> NodeArtifact:
    path = context.scratch / secrets.token_hex(12)
    path.write_bytes(file.path.read_bytes())
    return NodeArtifact(file.content_type, path=path, kind=kind, prefix=prefix, info=file.info)


def save_text(_context: NodeContext, text: str, filename_prefix: str) -> NodeInputs:
    """A text as a file."""
    made = NodeArtifact("text/plain", str(text).encode(), kind="files", prefix=filename_prefix)
    return NodeInputs((str(text),), (made,), {"text": (str(text),)})


HOSTED: Mapping[str, HostedNodes] = {
    "SixfoldTemplate": HostedNodes(_template, _anything),
    "SixfoldTextToImage": HostedNodes(_text_to_image, _picture),
    "SixfoldEdgeStyle": HostedNodes(_restyle, _ruled),
    "SixfoldLineControl": HostedNodes(_restyle, _ruled),
    "SixfoldTranscribe": HostedNodes(_transcribe, _text),
    "SixfoldCloneSpeech": HostedNodes(_speak, _sound),
    "SixfoldSoundEffects": HostedNodes(_effects, _sound),
    "SixfoldTextTo3D": HostedNodes(_text_to_3d, _model_file),
    "SixfoldImageTo3D": HostedNodes(_image_to_3d, _model_file),
    "ImageUpscaleWithModel": HostedNodes(_upscale, _picture),
}
RUNS: Mapping[str, Run] = {"SixfoldSaveText": save_text}
