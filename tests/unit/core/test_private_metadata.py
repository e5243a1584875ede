"""Copies of files without the metadata that may contain a prompt: pixels, frames and sound are unchanged."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageSequence
from PIL.PngImagePlugin import PngInfo

from sixfold.core.provenance import embed, private_metadata, redaction
from sixfold.core.provenance.formats import edits
from sixfold.core.workflows import image_metadata
from tests.harness import image_files
from tests.unit.core.test_manifest_containers import FILES, IMAGES, TEXT, decoded_frames, encoded_file, moving

GRAPH = {"1": {"class_type": "Text", "inputs": {"text": "a secret prompt"}}}
SECRETS = (b"secret", "Löwe".encode(), b"Lavf", b"hello")


def private_copy(path: Path, data: bytes, content_type: str) -> bytes:
    path.write_bytes(data)
    private_metadata.remove(path)
    embed.embed_file(path, content_type, "{}")
    return path.read_bytes()


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("glb", "svg")])
def test_copy_has_no_prompt_and_the_same_content(name: str, tmp_path: Path) -> None:
    content_type, data = encoded_file(name)
    if content_type in ("image/png", "image/webp"):
        data = image_metadata.embed(data, GRAPH, GRAPH)
    copy = private_copy(tmp_path / "file", embed.embed(data, content_type, TEXT), content_type)
    assert embed.extract(copy) == "{}"
    if name in IMAGES:
        first, second = (np.asarray(Image.open(io.BytesIO(each))) for each in (data, copy))
        assert np.array_equal(first, second)
    else:
        assert decoded_frames(copy) == decoded_frames(data)
    # The tags of sounds and of AVIF files are those of the encoder, which has no prompt.
    if content_type.partition("/")[2] in ("png", "jpeg", "webp", "gif", "mp4", "quicktime"):
        assert not any(secret in copy for secret in SECRETS)


def test_removed_metadata_does_not_include_the_loop_count(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a secret prompt"
    picture = Image.new("RGB", (8, 8))
    for kind in ("PNG", "JPEG", "WEBP"):
        data = image_files.encode(picture, kind, exif=exif)
        copy = private_copy(tmp_path / kind, data, f"image/{kind.lower()}")
        assert (b"secret" in data, b"secret" in copy) == (True, False)
        assert Image.open(io.BytesIO(copy)).size == (8, 8)
    copy = private_copy(tmp_path / "gif", moving("GIF", comment=b"a secret prompt"), "image/gif")
    animation: Any = Image.open(io.BytesIO(copy))
    assert (b"secret" in copy, animation.n_frames, animation.info["loop"]) == (False, 3, 0)


def test_private_chunks_of_an_animated_png_are_removed(tmp_path: Path) -> None:
    graph = PngInfo()
    # ComfyUI's SaveAnimatedPNG writes these.
    for key in (b"prompt", b"workflow"):
        graph.add(b"comf", key + b'\0{"text": "a secret prompt"}', after_idat=True)
    data = moving("PNG", pnginfo=graph, dpi=(72, 72))
    copy = private_copy(tmp_path / "file", data, "image/png")
    assert (b"secret" in data, b"secret" in copy, b"comf" in copy) == (True, False, False)
    assert png_frames(copy) == png_frames(data)


def test_private_parts_of_jpeg_and_webp_files_are_removed(tmp_path: Path) -> None:
    secret = b"a secret prompt."
    part = b"\xff\xe9" + (len(secret) + 2).to_bytes(2) + secret
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for kind in ("JPEG", "WEBP"):
        plain = image_files.encode(
            Image.new("CMYK" if kind == "JPEG" else "RGB", (8, 8)), kind, icc_profile=profile
        )
        if kind == "JPEG":
            data = plain[:2] + part + plain[2:]
        else:
            body = plain[8:] + b"PRMT" + len(secret).to_bytes(4, "little") + secret
            data = b"RIFF" + len(body).to_bytes(4, "little") + body
        copy = private_copy(tmp_path / kind, data, f"image/{kind.lower()}")
        assert (secret in data, secret in copy) == (True, False)
        before, after = (Image.open(io.BytesIO(each)) for each in (data, copy))
        assert (before.tobytes(), before.info["icc_profile"]) == (after.tobytes(), profile)


XMP_BOX = bytes.fromhex("be7acfcb97a942e89c71999491e3afac") + b"<x:xmpmeta>a secret prompt</x:xmpmeta>"


def box(kind: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4) + kind + body


@pytest.mark.parametrize("name", ["mp4", "faststart mp4", "fragmented mp4", "mov", "m4a", "avif"])
def test_private_boxes_and_earlier_manifests_are_removed(name: str, tmp_path: Path) -> None:
    content_type, data = encoded_file(name)
    first = embed.embed(data, content_type, TEXT) + box(b"uuid", XMP_BOX)
    # The manifest before the other box becomes free space.
    second = embed.embed(first, content_type, '{"seed":7}') + box(b"wide", b"")
    assert all(secret in second for secret in (b"secret", "Löwe".encode(), b'"seed"'))
    copy = private_copy(tmp_path / "file", second, content_type)
    assert not any(secret in copy for secret in (b"secret", "Löwe".encode(), b'"seed"'))
    assert (b"mfra" in copy) == (b"mfra" in data)
    assert embed.extract(copy) == "{}"
    if name == "avif":
        assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(data)).tobytes()
    else:
        assert decoded_frames(copy) == decoded_frames(data)


@pytest.mark.parametrize("name", ["mp4", "fragmented mp4", "avif"])
def test_copy_of_a_copy_has_the_same_bytes(name: str, tmp_path: Path) -> None:
    content_type, data = encoded_file(name)
    copy = private_copy(tmp_path / "file", embed.embed(data, content_type, TEXT), content_type)
    assert private_copy(tmp_path / "file", copy, content_type) == copy


def test_tags_of_a_webm_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "tagged"
    # As ComfyUI's SaveWEBM writes the graph.
    with av.open(path, "w", format="webm") as out:
        out.metadata["PROMPT"] = '{"text": "a secret prompt"}'
        stream: Any = out.add_stream("libvpx-vp9", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for value in range(0, 250, 50):
            pixels = np.full((48, 64, 3), value, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())
    data = path.read_bytes()
    copy = private_copy(tmp_path / "file", data, "video/webm")
    assert (b"secret" in data, b"secret" in copy, embed.extract(copy)) == (True, False, "{}")
    assert decoded_frames(copy) == decoded_frames(data)


def png_frames(data: bytes) -> list[tuple[Any, ...]]:
    with Image.open(io.BytesIO(data)) as animation:
        return [
            (frame.tobytes(), frame.info["duration"], frame.info["loop"], frame.info["dpi"])
            for frame in ImageSequence.Iterator(animation)
        ]


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n", b"RIFF\x10\0\0\0WEBPVP8X", b"GIF89a", b"plain text"]
)
def test_damaged_file_is_unchanged(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    private_metadata.remove(path)
    assert path.read_bytes() == data


NAME = "OcXGqr0_zxwy95cStp8KdtahFEii1azo.png"
UPLOAD = f"/uploads/{'0f' * 16}/plans/draft.png"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"https://here.example/media/{NAME}", {"url": "https://here.example/media/", "withheld": "name"}),
        (f" /media/{NAME} ", {"url": "/media/", "withheld": "name"}),
        (UPLOAD, {"url": "/uploads/", "withheld": "name"}),
        ([{"clip": UPLOAD}, 7, None], [{"clip": {"url": "/uploads/", "withheld": "name"}}, 7, None]),
        ("https://here.example/media/fox.png", "https://here.example/media/fox.png"),
        ("a fox in a /media/ player", "a fox in a /media/ player"),
    ],
)
def test_manifest_does_not_name_files_that_everyone_could_read(value: Any, expected: Any) -> None:
    assert redaction.without_file_paths({"input": value}) == {"input": expected}


@pytest.mark.parametrize("text", [f"as in /media/{NAME}", f"/media/{NAME}#x", f"/media/{NAME} and {UPLOAD}"])
def test_text_with_the_path_of_a_file_becomes_a_digest(text: str) -> None:
    inputs = redaction.without_file_paths({"prompt": text})
    assert inputs == {"prompt": redaction.digest(text.encode())}
    assert redaction.replaced(inputs) == ["prompt"]


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_embedded_graph_does_not_name_files(kind: str) -> None:
    graph: dict[str, Any] = {"1": {"class_type": "LoadImage", "inputs": {"image": f"/media/{NAME}"}}}
    data = image_metadata.embed(
        image_files.encode(Image.new("RGB", (8, 8)), kind), graph, {"nodes": [UPLOAD]}
    )
    found = image_metadata.extract(data)
    assert found["prompt"] == {"1": {"class_type": "LoadImage", "inputs": {"image": "/media/withheld"}}}
    assert found["workflow"] == {"nodes": ["/uploads/withheld"]}


def test_failed_edit_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = tmp_path / "file", image_files.encode(Image.new("RGB", (8, 8)))
    path.write_bytes(data)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(edits, "_copy", full)
    with pytest.raises(OSError, match="No space left"):
        embed.embed_file(path, "image/png", TEXT)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == data
