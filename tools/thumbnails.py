"""Create small previews of outputs for cards: images, clips, audio, rendered 3D models and strings."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import av
import cv2
import numpy as np
import resvg_py
import trimesh
from PIL import Image

MAX_BYTES, MAX_LARGE_BYTES = 15_000, 80_000
_WIDE, _TALL = 400, 225
_LARGE = 1024
_CLIP = (256, 144)
_CLIP_RATE, _CLIP_FRAMES = 12, 24
_AUDIO_SECONDS, _AUDIO_RATE = 3.4, 22_050
_PEAKS, _LOUDEST = 72, 99
_MAX_CHARS = 180
_LIGHT = np.array([0.4, 0.75, 0.55])
_LIMBS = (
    ("pelvis", "chest", "neck", "head"),
    *(
        limb
        for side in ("left", "right")
        for limb in (
            ("neck", f"{side}_shoulder", f"{side}_elbow", f"{side}_wrist"),
            ("pelvis", f"{side}_hip", f"{side}_knee", f"{side}_ankle", f"{side}_toe"),
        )
    ),
)


def image(data: bytes) -> bytes:
    """Return an image as WebP in the size of a card."""
    return _webp(Image.open(io.BytesIO(data)))


def large_image(data: bytes) -> bytes | None:
    """Return an image as WebP in the size of a model's page; None if the card's is as large."""
    image = Image.open(io.BytesIO(data))
    return _webp(image, MAX_LARGE_BYTES, (_LARGE, 800, 640)) if max(image.size) > 1.5 * _WIDE else None


def _webp(image: Image.Image, most: int = MAX_BYTES, sides: Sequence[int] = (_WIDE, 320, 240)) -> bytes:
    clear = image.mode in ("RGBA", "LA", "P") and "A" in image.convert("RGBA").getbands()
    for side in sides:
        small = image.convert("RGBA" if clear else "RGB")
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in range(84, 20, -6):
            file = io.BytesIO()
            small.save(file, "WEBP", quality=quality, method=6)
            if file.tell() <= most:
                return file.getvalue()
    raise ValueError(
        f"the image must fit in {most} bytes as WebP, but does not at the lowest size and quality"
    )


def drawing(data: bytes) -> bytes:
    """Return an SVG rendered as WebP."""
    return image(bytes(resvg_py.svg_to_bytes(svg_string=data.decode(), width=_WIDE)))


def video(data: bytes) -> tuple[bytes, bytes]:
    """Return a frame of a video as WebP, and its first seconds as WebM without audio."""
    frames = _frames(data)
    for crf in range(34, 63, 4):
        clip = _clip(frames, crf)
        if len(clip) <= MAX_BYTES:
            return _webp(Image.fromarray(frames[len(frames) // 2])), clip
    return _webp(Image.fromarray(frames[len(frames) // 2])), _clip(frames[: len(frames) // 2], 62)


def _frames(data: bytes) -> list[Any]:
    with av.open(io.BytesIO(data), "r") as source:
        stream: Any = source.streams.video[0]
        clear = stream.metadata.get("alpha_mode") == "1"
        decoder = av.CodecContext.create("libvpx-vp9", "r") if clear else stream
        rate = float(stream.average_rate or _CLIP_RATE)
        expected = [round(at * rate / _CLIP_RATE) for at in range(_CLIP_FRAMES)]
        frames: list[Any] = []
        decoded = (frame for packet in source.demux(stream) for frame in decoder.decode(packet))
        for number, frame in enumerate(decoded):
            if number in expected:
                frames.append(_on_checkerboard(frame) if clear else frame.to_ndarray(format="rgb24"))
            if number >= expected[-1]:
                break
    return frames


def _on_checkerboard(frame: Any) -> Any:
    """Return a frame with a checkerboard behind its transparent pixels."""
    rgba = frame.to_ndarray(format="rgba").astype(np.float32)
    rows, columns = np.indices(rgba.shape[:2])
    squares = np.where((rows // 12 + columns // 12) % 2, 214, 244)[..., None]
    alpha = rgba[..., 3:] / 255
    return np.rint(rgba[..., :3] * alpha + squares * (1 - alpha)).astype(np.uint8)


def _clip(frames: Sequence[Any], crf: int) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="webm", options={"fflags": "+bitexact"}) as target:
        stream: Any = target.add_stream("libvpx-vp9", rate=_CLIP_RATE)
        stream.width, stream.height = _CLIP
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(crf), "b": "0", "threads": "1", "row-mt": "0", "cpu-used": "2"}
        for rgb in frames:
            stream_frame = av.VideoFrame.from_ndarray(_cover(rgb, _CLIP), format="rgb24")
            target.mux(stream.encode(stream_frame))
        target.mux(stream.encode())
    return file.getvalue()


def _cover(rgb: Any, size: tuple[int, int]) -> Any:
    """Scale an image to cover `size`, and crop it to the center."""
    height, width = rgb.shape[:2]
    scale = max(size[0] / width, size[1] / height)
    large = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    top, left = (large.shape[0] - size[1]) // 2, (large.shape[1] - size[0]) // 2
    return np.ascontiguousarray(large[top : top + size[1], left : left + size[0]])


def audio(data: bytes) -> tuple[bytes, list[int]]:
    """Return the first seconds of an audio file as MP3, and its peaks from 0 to 99."""
    samples = _samples(data)
    start = samples[: int(_AUDIO_SECONDS * _AUDIO_RATE)].copy()
    fade = min(len(start), _AUDIO_RATE // 5)
    start[len(start) - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)
    file = io.BytesIO()
    with av.open(file, "w", format="mp3", options={"fflags": "+bitexact", "write_xing": "0"}) as target:
        stream: Any = target.add_stream("libmp3lame", rate=_AUDIO_RATE)
        stream.bit_rate = 32_000
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(start[None, :], format="fltp", layout="mono")
        frame.sample_rate = _AUDIO_RATE
        target.mux(stream.encode(frame))
        target.mux(stream.encode())
    edges = np.linspace(0, len(start), _PEAKS + 1).astype(int)
    tops = [float(np.abs(start[a:b]).max(initial=0)) for a, b in pairwise(edges)]
    return file.getvalue(), [round(_LOUDEST * top / (max(tops) or 1)) for top in tops]


def _samples(data: bytes) -> Any:
    mono = av.AudioResampler(format="fltp", layout="mono", rate=_AUDIO_RATE)
    with av.open(io.BytesIO(data), "r") as source:
        blocks = [part.to_ndarray()[0] for frame in source.decode(audio=0) for part in mono.resample(frame)]
    return np.concatenate(blocks)


def model(data: bytes) -> bytes:
    """Render a GLB from the front right with light from above, as WebP with a transparent background."""
    scene: Any = trimesh.load(io.BytesIO(data), file_type="glb")
    corners: list[Any] = []
    colors: list[Any] = []
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        mesh = scene.geometry[name]
        corners.append(trimesh.transform_points(mesh.vertices, transform)[mesh.faces])
        colors.append(_face_colors(mesh))
    points, paint = np.concatenate(corners), np.concatenate(colors)
    around, over = 0.6, 0.42
    turn = np.array([[np.cos(around), 0, -np.sin(around)], [0, 1, 0], [np.sin(around), 0, np.cos(around)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(over), -np.sin(over)], [0, np.sin(over), np.cos(over)]])
    rotated = (points - (points.max((0, 1)) + points.min((0, 1))) / 2) @ turn.T @ tilt.T
    normals = np.cross(rotated[:, 1] - rotated[:, 0], rotated[:, 2] - rotated[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-12
    light = 0.45 + 0.65 * np.clip(normals @ (_LIGHT / np.linalg.norm(_LIGHT)), 0, 1)
    scale = (
        2 * _TALL * 0.86 / max(float(np.ptp(rotated[..., 1])), float(np.ptp(rotated[..., 0])) * _TALL / _WIDE)
    )
    flat = np.stack([_WIDE + scale * rotated[..., 0], _TALL - scale * rotated[..., 1]], -1)
    image = np.zeros((2 * _TALL, 2 * _WIDE, 4), np.uint8)
    for at in np.argsort(rotated[..., 2].mean(1), kind="stable"):
        if normals[at, 2] > 0:
            color = (*np.clip(paint[at] * light[at], 0, 255).tolist(), 255)
            cv2.fillConvexPoly(image, np.rint(flat[at]).astype(np.int32), color)
    return _webp(Image.fromarray(image))


def _face_colors(mesh: Any) -> Any:
    """Return the color of each face from 0 to 255, or a single color for all faces."""
    inputs = getattr(mesh.visual, "vertex_attributes", {}).get("color")  # set if the material lacks a texture
    if inputs is not None and len(inputs) == len(mesh.vertices):
        linear = np.asarray(inputs, np.float64)[mesh.faces][..., :3].mean(1) / 255
        return 255 * linear ** (1 / 2.2)
    colors = mesh.visual.to_color() if hasattr(mesh.visual, "to_color") else mesh.visual
    result = np.asarray(colors.vertex_colors)
    if len(result) == len(mesh.vertices):
        return result[mesh.faces][..., :3].mean(1)
    plain = result.reshape(-1, result.shape[-1])[0] if result.size else np.asarray(colors.main_color)
    return np.broadcast_to(plain.reshape(-1)[:3].astype(float), (len(mesh.faces), 3))


def poses(sequence: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw poses of a motion side by side, as WebP."""
    image = np.zeros((2 * _TALL, 2 * _WIDE, 4), np.uint8)
    visible = sequence[:: max(1, len(sequence) // 6)][:6]
    for number, pose in enumerate(visible):
        joints = pose["joints"]
        shift = _WIDE * (number + 0.5) / 3 - 230 * joints["pelvis"][0]
        for limb in _LIMBS:
            hue = (34, 144, 140, 255) if "left" in limb[1] else (217, 148, 43, 255)
            spots = [joints[name] for name in limb if name in joints]
            places = [
                (int(shift + 230 * (x + 0.5 * z - 0.5 * joints["pelvis"][2])), int(410 - 230 * y))
                for x, y, z in spots
            ]
            for one, other in pairwise(places):
                cv2.line(image, one, other, hue, 9, cv2.LINE_AA)
    return _webp(Image.fromarray(image))


def words(data: Mapping[str, Any]) -> str:
    """Return data as a short string for a card."""
    plain = data["value"] if data.keys() == {"value"} else data.get("text", data)
    text = plain if isinstance(plain, str) else json.dumps(_round_values(plain), ensure_ascii=False)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1].rstrip() + "…"


def _round_values(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Mapping):
        return {name: _round_values(item) for name, item in value.items()}
    return [_round_values(item) for item in value] if isinstance(value, list | tuple) else value
