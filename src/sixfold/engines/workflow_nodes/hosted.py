"""Nodes that run one of the platform's models as a child prediction.

Each row has two functions: `request` converts the node's inputs to the child's request (also for estimates),
and `convert` converts the child's output to the node's outputs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.input_limits import json_decoding
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.estimate import UnknownCost
from sixfold.core.workflows.ports import (
    ChildRequest,
    NodeArtifact,
    NodeChild,
    NodeContext,
    NodeFile,
    NodeResult,
    Run,
)
from sixfold.engines.audio import effects
from sixfold.engines.audio import files as audio_files
from sixfold.engines.workflow_nodes import audio, images, sampling, values
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import AudioValue, FramesValue, VideoValue
from sixfold.errors import EngineUnavailable

_SEEDS = 2**31
_EFFECTS = "sound-effects"
CLONING = (
    "Cloning a voice requires a recording of it in `voice_sample`, and weights: run "
    "`pip install chatterbox-tts` and set `source` in `[engines.weights-clone]` of sixfold.toml to the "
    "folder of its weights."
)
_UNKNOWN_EFFECT = (
    "No engine on this server makes the sound that the prompt describes: run `sixfold model add FILE.py` "
    "with a model that does, and set `model` to its name."
)
Request = Callable[[Mapping[str, Any]], ChildRequest]
Convert = Callable[[NodeContext, NodeChild, Mapping[str, Any]], NodeResult]
_VIDEO_TYPES = ("video/mp4", "video/webm", "video/quicktime")


class HostedNodes(msgspec.Struct, frozen=True):
    """A node class: its child request, and the conversion of the child's output."""

    request: Request
    convert: Convert

    def estimate(self, inputs: Mapping[str, Any]) -> tuple[ChildRequest, ...]:
        """Return the node's child request for an estimate; some inputs may be unknown."""
        return (self.request(inputs),)

    async def run(self, context: NodeContext, **inputs: Any) -> NodeResult:
        ready = {name: await asyncio.to_thread(_sendable, context, value) for name, value in inputs.items()}
        child = await context.child(self.request(ready))
        return await asyncio.to_thread(self.convert, context, child, inputs)


def _sendable(context: NodeContext, value: Any) -> Any:
    """Return images, audio and video as files, and other values unchanged."""
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


def _present(**inputs: Any) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


def _seed(inputs: Mapping[str, Any]) -> int | UnknownCost:
    return _known(lambda seed: int(seed) % _SEEDS, inputs.get("seed") or 0)


def _known(kind: Callable[[Any], Any], value: Any) -> Any:
    """Convert a value; a value that is known only during the run is returned unchanged."""
    return value if isinstance(value, UnknownCost) else kind(value)


def _strength(inputs: Mapping[str, Any]) -> Any:
    value = inputs.get("strength", inputs.get("conditioning_scale", 0.6))
    return _known(lambda strength: max(0.01, min(float(strength), 1.0)), value)


def _model_name(model: Any, default: str) -> str:
    """Return the name of the model, which must be known before the run, as its price depends on it."""
    if isinstance(model, UnknownCost):
        raise UnusableInput(
            "The model must be known before the run: it cannot be the output of another node."
        )
    return str(model or default)


# -- requests ------------------------------------------------------------------------------------


def _text_to_image(inputs: Mapping[str, Any]) -> ChildRequest:
    sizes = {name: _known(int, inputs[name]) for name in ("width", "height", "steps")}
    words = {name: _known(str, inputs.get(name) or "") for name in ("prompt", "negative_prompt")}
    return ChildRequest(sampling.IMAGE, {**words, **sizes, "seed": _seed(inputs)})


def _restyle(inputs: Mapping[str, Any]) -> ChildRequest:
    fields = _present(
        style_prompt=inputs.get("prompt"),
        strength=_strength(inputs),
        steps=inputs.get("steps"),
        guidance=inputs.get("guidance_scale"),
        source_image_url=inputs.get("image"),
    )
    return ChildRequest(sampling.RESTYLE, {**fields, "seed": _seed(inputs)})


def _upscale(inputs: Mapping[str, Any]) -> ChildRequest:
    model = inputs.get("upscale_model")
    name = str(getattr(model, "inputs", {}).get("model_name", "")).lower()
    fields = {
        "scale": 2 if "x2" in name or "2x" in name else 4,
        "model": "anime" if "anime" in name else "general",
    }
    return ChildRequest("upscaler", {**fields, **_present(image=inputs.get("image"))})


def _transcribe(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(
        "stt", _present(audio_url=inputs.get("audio"), language=inputs.get("language") or None)
    )


def _speak(inputs: Mapping[str, Any]) -> ChildRequest:
    sample, words = inputs.get("voice_sample"), inputs.get("sample_text")
    if isinstance(words, str) and words.strip() and sample is None:
        raise EngineUnavailable(CLONING)
    return ChildRequest(
        "tts-a", {"input": _known(str, inputs.get("text") or ""), **_present(voice_sample=sample)}
    )


def _effects(inputs: Mapping[str, Any]) -> ChildRequest:
    prompt, model = inputs.get("prompt"), _model_name(inputs.get("model"), _EFFECTS)
    if model == _EFFECTS and isinstance(prompt, str) and not effects.is_supported(prompt):
        raise EngineUnavailable(_UNKNOWN_EFFECT)
    fields = {"prompt": prompt, "duration_seconds": inputs.get("duration_seconds")}
    return ChildRequest(model, fields)


def _text_to_3d(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(_model_name(inputs.get("model"), "text-to-3d"), {"prompt": inputs.get("prompt")})


def _image_to_3d(inputs: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(
        _model_name(inputs.get("model"), "image-to-3d-voxel"), _present(image=inputs.get("image"))
    )


def _template(inputs: Mapping[str, Any]) -> ChildRequest:
    template, value = _model_name(inputs.get("template"), "").removeprefix("template:"), inputs.get("input")
    linked = _present(**{name: inputs.get(name) for name in ("image", "mask", "audio", "video")})
    if isinstance(value, UnknownCost):
        return ChildRequest(template, linked, open=True)
    try:
        fields = json_decoding.decode_whole(str(value or "{}"))
    except (ValueError, RecursionError):
        raise UnusableInput("The template's input must be valid JSON with finite numbers.") from None
    if not isinstance(fields, dict):
        raise UnusableInput("The template's input must be a JSON object.")
    return ChildRequest(template, {**mapping(fields), **linked})


# -- outputs -------------------------------------------------------------------------------------


def _first(child: NodeChild) -> NodeFile:
    if not child.files:
        raise EngineError("The model did not return a file.")
    return child.files[0]


def _image(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeResult:
    return NodeResult((values.read(_first(child).path)[0],))


def _image_with_lines(_context: NodeContext, child: NodeChild, inputs: Mapping[str, Any]) -> NodeResult:
    source = values.frames(inputs["image"])[:1]
    image = scaled(values.read(_first(child).path)[0], source.shape[2], source.shape[1], "lanczos")
    lines = images.canny(_context, source, 0.2, 0.5)[0]
    strength = float(inputs.get("strength", inputs.get("conditioning_scale", 0.6)))
    return NodeResult((sampling.follow_lines(image, lines, strength),))


def _audio(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeResult:
    return NodeResult((AudioValue(audio_files.read(_first(child).path, 3600), audio_files.RATE),))


def _text(_context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeResult:
    return NodeResult((str(child.data.get("text", "")),))


def _model_file(context: NodeContext, child: NodeChild, inputs: Mapping[str, Any]) -> NodeResult:
    file = _first(child)
    return NodeResult(
        (file.digest,), artifacts=(_artifact(context, file, "3d", str(inputs.get("model") or "mesh")),)
    )


def _template_output(context: NodeContext, child: NodeChild, _inputs: Mapping[str, Any]) -> NodeResult:
    """Return a template's first image, audio and video, and its data as JSON; all its files are outputs."""
    outputs: list[Any] = [None, None, None, json.dumps(child.data, ensure_ascii=False) if child.data else ""]
    artifacts: list[NodeArtifact] = []
    for file in child.files:
        kind = file.content_type.partition("/")[0]
        if kind == "image" and outputs[0] is None and file.content_type != "image/svg+xml":
            outputs[0] = values.read(file.path)[0]
        elif kind == "audio" and outputs[1] is None:
            outputs[1] = AudioValue(audio_files.read(file.path, 3600), audio_files.RATE)
        elif file.content_type in _VIDEO_TYPES and outputs[2] is None:
            outputs[2] = VideoValue(file)
        artifacts.append(
            _artifact(context, file, _KINDS.get(kind, "3d" if kind == "model" else "files"), "template")
        )
    ui = {"text": (outputs[3],)} if outputs[3] else {}
    return NodeResult(tuple(outputs), tuple(artifacts), ui)


_KINDS = {"image": "images", "video": "images", "audio": "audio"}


def _artifact(context: NodeContext, file: NodeFile, kind: str, prefix: str) -> NodeArtifact:
    return NodeArtifact(file.content_type, path=context.copy(file), kind=kind, prefix=prefix, info=file.info)


def save_text(_context: NodeContext, text: str, filename_prefix: str) -> NodeResult:
    artifact = NodeArtifact("text/plain", str(text).encode(), kind="files", prefix=filename_prefix)
    return NodeResult((str(text),), (artifact,), {"text": (str(text),)})


HOSTED: Mapping[str, HostedNodes] = {
    "SixfoldTemplate": HostedNodes(_template, _template_output),
    "SixfoldTextToImage": HostedNodes(_text_to_image, _image),
    "SixfoldEdgeStyle": HostedNodes(_restyle, _image_with_lines),
    "SixfoldLineControl": HostedNodes(_restyle, _image_with_lines),
    "SixfoldTranscribe": HostedNodes(_transcribe, _text),
    "SixfoldCloneSpeech": HostedNodes(_speak, _audio),
    "SixfoldSoundEffects": HostedNodes(_effects, _audio),
    "SixfoldTextTo3D": HostedNodes(_text_to_3d, _model_file),
    "SixfoldImageTo3D": HostedNodes(_image_to_3d, _model_file),
    "ImageUpscaleWithModel": HostedNodes(_upscale, _image),
}
RUNS: Mapping[str, Run] = {"SixfoldSaveText": save_text}
