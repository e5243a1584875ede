"""Manifests in real files: encoded, embedded, and decoded by real decoders."""

from __future__ import annotations

import io
import struct
import tempfile
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import av.error
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageSequence

from sixfold.core.provenance import embed, manifest
from sixfold.core.provenance.formats import edits, media_types, png, svg, webm
from sixfold.core.provenance.formats.parts import MalformedFile
from tests.harness import image_files

TEXT = '{"prompt":"ein Löwe 🦁 <svg> & \\"Zitat\\" ]]> -->","seed":7}'
LONG = '{"prompt":"' + "Löwe <&> 🦁 " * 12_000 + '"}'


def picture(mode: str = "RGB", width: int = 61, height: int = 37) -> Image.Image:
    noise = np.random.default_rng(1).integers(0, 256, (height, width, 4), np.uint8)
    return Image.fromarray(noise, "RGBA" if mode == "P" else None).convert(mode)


def image(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    return image_files.encode(picture(mode), kind, **options)


def moving(kind: str, **options: Any) -> bytes:
    frames = [Image.new("RGB", (40, 30), (80 * index, 10, 200)) for index in range(3)]
    return image_files.encode(
        frames[0], kind, save_all=True, append_images=frames[1:], duration=100, loop=0, **options
    )


def video(container: str, codec: str, **options: str) -> bytes:
    # A path, because the writer opens the file again to move the index to the front.
    with (
        tempfile.TemporaryDirectory() as folder,
        av.open(f"{folder}/video", "w", format=container, options=options) as out,
    ):
        stream: Any = out.add_stream(codec, rate=10, options={"g": "5"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(20):
            pixels = np.full((48, 64, 3), index * 12, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())
        out.close()
        return Path(folder, "video").read_bytes()


def sound(container: str, codec: str, seconds: float = 1.0, **options: str) -> bytes:
    rate, file = 48_000, io.BytesIO()
    layout = "stereo" if codec == "vorbis" else "mono"
    with av.open(file, "w", format=container, options=options) as out:
        stream: Any = out.add_stream(codec, rate=rate, layout=layout, options={"strict": "-2"})
        times = np.arange(int(seconds * rate)) / rate
        samples = (np.sin(2 * np.pi * 440 * times) * 12_000).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        resampler = av.AudioResampler(stream.codec_context.format, layout, rate, stream.frame_size or None)
        for part in (*resampler.resample(frame), *resampler.resample(None)):
            out.mux(stream.encode(part))
        out.mux(stream.encode())
    return file.getvalue()


def glb(scene: str = '{"asset":{"version":"2.0"},"x":1.50}', payload: bytes = b"12345678") -> bytes:
    raw = scene.encode() + b" " * (-len(scene) % 4)
    body = (
        struct.pack("<I4s", len(raw), b"JSON") + raw + struct.pack("<I4s", len(payload), b"BIN\0") + payload
    )
    return b"glTF" + struct.pack("<II", 2, 12 + len(body)) + body


SVG = '<?xml version="1.0"?>\n<!-- > <svg> -->\n<svg xmlns="http://www.w3.org/2000/svg" width="9"><g/></svg>'

IMAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "png": ("image/png", lambda: image("PNG", "RGBA")),
    "png with a palette": ("image/png", lambda: image("PNG", "P")),
    "apng": ("image/png", lambda: moving("PNG")),
    "jpeg": ("image/jpeg", lambda: image("JPEG", exif=Image.Exif(), comment="hello")),
    "progressive jpeg": ("image/jpeg", lambda: image("JPEG", progressive=True, icc_profile=b"profile" * 20)),
    "several pictures in a jpeg": ("image/jpeg", lambda: moving("MPO")),
    "lossy webp": ("image/webp", lambda: image("WEBP", quality=50)),
    "lossy webp with alpha": ("image/webp", lambda: image("WEBP", "RGBA", quality=50)),
    "lossless webp": ("image/webp", lambda: image("WEBP", lossless=True)),
    "lossless webp with alpha": ("image/webp", lambda: image("WEBP", "RGBA", lossless=True)),
    "webp with a packet": ("image/webp", lambda: image("WEBP", xmp=b"<x><rdf:RDF>other</rdf:RDF></x>")),
    "moving webp": ("image/webp", lambda: moving("WEBP")),
    "gif": ("image/gif", lambda: image("GIF", "P")),
    "moving gif": ("image/gif", lambda: moving("GIF", comment=b"hello")),
    "avif": ("image/avif", lambda: image("AVIF")),
}

MEDIA: dict[str, tuple[str, Callable[[], bytes]]] = {
    "mp4": ("video/mp4", lambda: video("mp4", "libx264")),
    "faststart mp4": ("video/mp4", lambda: video("mp4", "libx264", movflags="faststart")),
    "fragmented mp4": ("video/mp4", lambda: video("mp4", "libx264", movflags="frag_keyframe+empty_moov")),
    "mov": ("video/quicktime", lambda: video("mov", "libx264")),
    "m4a": ("audio/mp4", lambda: sound("mp4", "aac")),
    "webm": ("video/webm", lambda: video("webm", "libvpx-vp9")),
    "webm with cues in front": ("video/webm", lambda: video("webm", "libvpx", cues_to_front="1")),
    "live webm": ("video/webm", lambda: video("webm", "libvpx", live="1")),
    "webm audio": ("audio/webm", lambda: sound("webm", "libopus")),
    "mkv": ("video/x-matroska", lambda: video("matroska", "libx264")),
    "wav": ("audio/wav", lambda: sound("wav", "pcm_s16le")),
    "odd wav": ("audio/wav", lambda: sound("wav", "pcm_u8", 0.5)),
    "mp3": ("audio/mpeg", lambda: sound("mp3", "libmp3lame")),
    "mp3 with id3 2.3": ("audio/mpeg", lambda: sound("mp3", "libmp3lame", id3v2_version="3")),
    "mp3 without id3": ("audio/mpeg", lambda: sound("mp3", "libmp3lame", id3v2_version="0")),
    "flac": ("audio/flac", lambda: sound("flac", "flac")),
    "opus": ("audio/ogg", lambda: sound("ogg", "libopus", 3.0)),
    "vorbis": ("audio/ogg", lambda: sound("ogg", "vorbis", 3.0)),
}

OTHERS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "glb": ("model/gltf-binary", glb),
    "svg": ("image/svg+xml", lambda: SVG.encode()),
}

FILES = {**IMAGES, **MEDIA, **OTHERS}
every_file = pytest.mark.parametrize("name", FILES)
every_medium = pytest.mark.parametrize("name", MEDIA)


@cache
def encoded_file(name: str) -> tuple[str, bytes]:
    content_type, make = FILES[name]
    return content_type, make()


def embed_all(name: str, text: str = TEXT) -> bytes:
    content_type, data = encoded_file(name)
    return embed.embed(data, content_type, text)


def decoded_frames(data: bytes) -> tuple[float | None, list[tuple[Any, Any]]]:
    """Return the duration in seconds, and time and content of each frame."""
    with av.open(io.BytesIO(data), "r") as source:
        frames: Any = source.decode(source.streams[0])
        frames = [(frame.pts, frame.to_ndarray().tobytes()) for frame in frames]
        return source.duration, frames


@every_file
def test_embedded_text_is_extracted_unchanged(name: str) -> None:
    _, data = encoded_file(name)
    assert embed.extract(data) is None
    for text in (TEXT, LONG, "{}"):
        assert embed.extract(embed_all(name, text)) == text


@every_file
def test_embedding_is_deterministic_and_replaces_old_text(name: str) -> None:
    content_type, _ = encoded_file(name)
    once = embed_all(name)
    assert embed_all(name) == once
    long = embed.embed(once, content_type, LONG)
    assert embed.extract(long) == LONG
    assert TEXT[:20].encode() not in long
    assert embed.embed(long, content_type, TEXT) == once


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("text", [TEXT, LONG], ids=["short", "long"])
def test_image_keeps_its_pixels_and_metadata(name: str, text: str) -> None:
    before = Image.open(io.BytesIO(encoded_file(name)[1]))
    after = Image.open(io.BytesIO(embed_all(name, text)))
    assert (before.size, before.mode, before.format) == (after.size, after.mode, after.format)
    for key in ("icc_profile", "exif", "loop", "duration", "transparency", "jfif"):
        assert before.info.get(key) == after.info.get(key), key
    frames = zip(ImageSequence.Iterator(before), ImageSequence.Iterator(after), strict=True)
    for first, second in frames:
        assert first.convert("RGBA").tobytes() == second.convert("RGBA").tobytes()


@every_medium
@pytest.mark.parametrize("text", [TEXT, LONG], ids=["short", "long"])
def test_video_and_audio_keep_their_frames_and_times(name: str, text: str) -> None:
    before, after = decoded_frames(encoded_file(name)[1]), decoded_frames(embed_all(name, text))
    assert before[1] == after[1]
    assert after[0] == pytest.approx(before[0], rel=1e-3) if before[0] else not after[0]


@pytest.mark.parametrize("name", [name for name, (kind, _) in MEDIA.items() if kind.startswith("video")])
def test_video_remains_seekable(name: str) -> None:
    positions: list[int | None] = []
    for data in (encoded_file(name)[1], embed_all(name, LONG)):
        with av.open(io.BytesIO(data), "r") as source:
            source.seek(1_200_000)
            positions.append(next(source.decode(source.streams.video[0])).pts)
    assert positions[0] == positions[1]
    assert positions[1] or name == "live webm"


def test_ordinary_readers_see_the_text() -> None:
    assert Image.open(io.BytesIO(embed_all("png"))).info["sixfold"] == TEXT
    assert Image.open(io.BytesIO(embed_all("png", LONG))).info["sixfold"] == LONG
    jpeg = Image.open(io.BytesIO(image_embedded := embed_all("progressive jpeg")))
    assert jpeg.info["comment"] == f"sixfold 1/1:{TEXT}".encode()
    assert image_embedded.index(b"sixfold 1/1") < 1000
    assert b"&lt;svg&gt;" in Image.open(io.BytesIO(embed_all("lossless webp"))).info["xmp"]
    for name, key in (("mp3", "sixfold"), ("mp3 with id3 2.3", "sixfold"), ("flac", "SIXFOLD_MANIFEST")):
        with av.open(io.BytesIO(embed_all(name))) as source:
            assert source.metadata[key] == TEXT
    for name in ("opus", "vorbis"):
        with av.open(io.BytesIO(embed_all(name))) as source:
            assert source.streams[0].metadata["SIXFOLD_MANIFEST"] == TEXT


def test_existing_metadata_is_preserved() -> None:
    assert b"other" in Image.open(io.BytesIO(embed_all("webp with a packet"))).info["xmp"]
    assert b"hello" in embed_all("jpeg")
    with (
        av.open(io.BytesIO(encoded_file("mp3")[1])) as before,
        av.open(io.BytesIO(embed_all("mp3"))) as after,
    ):
        assert before.metadata.items() <= after.metadata.items()


def test_glb_keeps_its_other_json_and_binary_unchanged() -> None:
    before = glb('{"nodes":[1.50,  2],"asset":{"version":"2.0","extras":{"mine":1e-7}}}')
    after = embed.embed(before, "model/gltf-binary", TEXT)
    length, kind = struct.unpack_from("<I4s", after, 12)
    scene = msgspec.json.decode(after[20 : 20 + length])
    assert (kind, length % 4, struct.unpack_from("<I", after, 8)[0]) == (b"JSON", 0, len(after))
    assert scene["asset"]["extras"] == {"mine": 1e-7, "sixfold": TEXT}
    assert b"[1.50,  2]" in after
    assert after.endswith(before[-16:])
    odd = glb('{"asset":{"version":"2.0","extras":[]}}')
    assert embed.embed(odd, "model/gltf-binary", TEXT) is odd


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<svg/>", "<svg>%s</svg>"),
        ("<svg a='>' b=\"/>\"><g/></svg>", "<svg a='>' b=\"/>\">%s<g/></svg>"),
        ("<s:svg xmlns:s='x'></s:svg>", "<s:svg xmlns:s='x'>%s</s:svg>"),
        (
            "<!DOCTYPE svg [<!ENTITY a '<svg>]>'>]><svg></svg>",
            "<!DOCTYPE svg [<!ENTITY a '<svg>]>'>]><svg>%s</svg>",
        ),
        ("\ufeff<?xml version='1.0'?> <svg ></svg>", "\ufeff<?xml version='1.0'?> <svg >%s</svg>"),
    ],
)
def test_svg_stores_the_text_after_its_root_tag(before: str, after: str) -> None:
    prefix = "s:" if "s:svg" in before else ""
    ours = f'<{prefix}metadata id="sixfold-manifest">&lt;a&gt; &amp; "b"</{prefix}metadata>'
    result = embed.embed(before.encode(), "image/svg+xml; charset=utf-8", '<a> & "b"').decode()
    assert result == after.replace("%s", ours)
    assert embed.extract(result.encode()) == '<a> & "b"'


@pytest.mark.parametrize("data", [b"<html/>", b"", b"<svg", b"<svg a='", b"<!-- <svg>", SVG.encode("utf-16")])
def test_invalid_svg_is_unchanged(data: bytes) -> None:
    assert embed.embed(data, "image/svg+xml", TEXT) is data
    assert svg.extract(data) is None


def test_old_manifest_followed_by_other_data_is_removed_in_place() -> None:
    box = struct.pack(">I4s", 16, b"free") + bytes(8)
    moved = embed.embed(embed_all("mp4") + box, "video/mp4", LONG)
    assert moved.count(TEXT[:20].encode()) == 1, "the old text stays as free space, without its mark"
    assert embed.extract(moved) == LONG
    assert decoded_frames(moved) == decoded_frames(encoded_file("mp4")[1])
    void = b"\xec\x84" + bytes(4)
    inner = webm._segment(embed_all("webm"))
    assert inner is not None
    longer = bytearray(embed_all("webm") + void)
    longer[inner.start + 4 : inner.body] = (inner.end - inner.body + len(void) | 1 << 56).to_bytes(8)
    second_data = embed.embed(bytes(longer), "video/webm", LONG)
    assert embed.extract(second_data) == LONG
    assert TEXT[:20].encode() not in second_data
    assert decoded_frames(second_data)[1] == decoded_frames(encoded_file("webm")[1])[1]


def test_fragment_index_remains_the_last_box() -> None:
    data = encoded_file("fragmented mp4")[1]
    assert data[-12:-8] == b"mfro"
    assert embed_all("fragmented mp4")[-64:] == data[-64:]


def test_last_box_without_a_size_gets_its_size() -> None:
    data = encoded_file("faststart mp4")[1]
    at = data.rindex(b"mdat") - 4
    endless = data[:at] + bytes(4) + data[at + 4 :]
    after = embed.embed(endless, "video/mp4", TEXT)
    assert after == embed_all("faststart mp4")


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_id3_tag_of_any_version_keeps_its_frames(number: int) -> None:
    body = b"\0A title\xff\xe0"
    frame = b"TT2" + len(body).to_bytes(3) if number == 2 else b"TIT2" + len(body).to_bytes(4) + b"\0\0"
    payload = frame + body
    flags = 0x80 if number < 4 else 0
    written = payload.replace(b"\xff", b"\xff\0") if flags else payload
    tag = b"ID3" + bytes([number, 0, flags, 0, 0, 0, len(written) + 20]) + written + bytes(20)
    data = tag + encoded_file("mp3 without id3")[1]
    after = embed.embed(data, "audio/mpeg", TEXT)
    assert after[3] == number
    assert payload in after
    assert embed.extract(after) == TEXT
    with av.open(io.BytesIO(after)) as source:
        assert source.metadata["sixfold"] == TEXT
    assert decoded_frames(after)[1] == decoded_frames(data)[1]


def test_rf64_and_unfinished_wav_files_are_unchanged() -> None:
    data = encoded_file("wav")[1]
    rf64 = b"RF64" + data[4:]
    unfinished = data[:4] + b"\xff\xff\xff\xff" + data[8:]
    for broken in (rf64, unfinished):
        assert embed.embed(broken, "audio/wav", TEXT) is broken


@pytest.mark.parametrize("kind", ["text/plain", "application/pdf", "", "image/jpeg"])
def test_unknown_types_and_mismatched_bytes_are_unchanged(kind: str) -> None:
    data = encoded_file("png")[1]
    assert embed.embed(data, kind, TEXT) is data
    assert embed.embed(b"", kind, TEXT) == b""


@every_file
def test_truncated_file_is_not_damaged_by_embedding(name: str) -> None:
    content_type, data = encoded_file(name)
    for size in (0, 8, 20, len(data) // 2, len(data) - 1):
        after = embed.embed(data[:size], content_type, TEXT)
        assert after == data[:size] or embed.extract(after) == TEXT


def test_too_long_or_invalid_text_is_refused() -> None:
    data = encoded_file("png")[1]
    with pytest.raises(manifest.ManifestTooLarge):
        embed.embed(data, "image/png", "x" * (manifest.MAX_TEXT_BYTES + 1))
    for text in ("\0", "\n", "\ud800", "\uffff"):
        with pytest.raises(ValueError, match="control characters"):
            embed.embed(data, "image/png", text)


def test_compressed_text_above_the_limit_is_not_read() -> None:
    bomb = png._text_chunk(b" " * 50_000_000)
    data = encoded_file("png")[1]
    assert len(bomb) < 60_000
    assert png.extract(data[:33] + bomb + data[33:]) is None


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(edits.Unembeddable):
        edits.ordered([edits.FileEdit(2, 4, b""), edits.FileEdit(0, 3, b"")])


CARRIERS = [each.carrier for each in media_types.FORMATS if each.carrier is not None]


def extract(container: media_types.Carrier, data: bytes) -> str | None:
    try:
        return container.extract(data)
    except MalformedFile:
        return None


HOSTILE = [
    b"\x89PNG\r\n\x1a\n" + b"\xff\xff\xff\xffIHDR",
    b"\xff\xd8" + b"\xff" * 5_000_000,
    b"\xff\xd8\xff\xfe\0\0" * 1000,
    b"GIF89a" + b"\0\0\0\0\xff\0\0" + b"\x21\xff\x01" * 100_000,
    b"\0\0\0\0ftyp" * 1000,
    b"\0\0\0\1ftyp" + bytes(8) + b"x" * 100,
    b"\0\0\0\x08ftyp" * 300_000,
    b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff" + b"\xec\x80" * 300_000,
    b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff" + b"\x1f\x43\xb6\x75\xff" * 100_000,
    b"\x1a\x45\xdf\xa3" + b"\x01\xff\xff\xff\xff\xff\xff\xfe" * 1000,
    b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff"
    + (
        b"\x12\x54\xc3\x67\x10\x07\xff\xf8"
        + b"\x73\x73\x88\x67\xc8\x85\xec\x80\xec\x80\xec" * 47_662
        + bytes(6)
    )
    * 10,
    b"RIFF\xff\xff\xff\xffWEBP" + b"XMP \0\0\0\0" * 100_000,
    b"RIFF\xff\xff\xff\xffWAVEsxfd\xff\xff\xff\x7f",
    b"ID3\x04\0\0\x7f\x7f\x7f\x7f",
    b"ID3\x04\0\x40\0\0\x7f\x7f" + b"\x7f" * 20_000,
    b"ID3\x03\0\xc0\0\0\x7f\x7f" + b"\xff" * 20_000,
    b"ID3\x04\0\0\0\1\0\0" + b"TXXX\0\0\0\0\0\0" * 2000,
    b"fLaC\x84\0\0\x0c" + b"\0\0\0\0\xff\xff\xff\xff" + b"\0\0\0\0",
    b"fLaC" + b"\0\0\0\0" * 100_000,
    b"OggS\0\2" + bytes(20) + b"\1\x08OpusHead" + (b"OggS\0\0" + bytes(20) + b"\0") * 50_000,
    b"glTF\2\0\0\0\xff\xff\xff\xff\xff\xff\xff\xffJSON{",
    b"glTF\2\0\0\0\xff\xff\xff\xff\x00\x00\x01\x00JSON" + b'{"asset":' * 7282,
    b"<!DOCTYPE " + b"[" * 200_000,
    b"<!---->" * 100_000 + b"<svg" + b" a" * 100_000,
    b"<svg>" + b'<metadata id="sixfold-manifest">' * 50_000,
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_have_no_text(data: bytes) -> None:
    assert embed.extract(data) is None
    for container in CARRIERS:
        assert extract(container, data) is None


@given(st.binary(max_size=300), st.sampled_from(sorted(FILES)), st.integers(0, 60))
@settings(deadline=None, max_examples=4 * settings().max_examples)
def test_random_bytes_after_any_header_raise_no_error(data: bytes, name: str, head: int) -> None:
    data = encoded_file(name)[1][:head] + data
    assert embed.extract(data) is None
    for container in CARRIERS:
        assert extract(container, data) is None
    content_type = FILES[name][0]
    embed.embed(data, content_type, TEXT)


@given(st.sampled_from(sorted(FILES)), st.data())
@settings(deadline=None, max_examples=5 * settings().max_examples)
def test_damaged_file_raises_no_error(name: str, draw: st.DataObject) -> None:
    content_type, _ = encoded_file(name)
    data = bytearray(embed_all(name))
    around = [0, max(data.find(TEXT[:12].encode()) - 40, 0), len(data)]
    for _ in range(draw.draw(st.integers(1, 4))):
        near = draw.draw(st.sampled_from(around))
        at = min(near + draw.draw(st.integers(0, 160)), len(data) - 1)
        data[at : at + draw.draw(st.integers(0, 4))] = draw.draw(st.binary(max_size=6))
    result = embed.extract(bytes(data))
    assert result is None or len(result) <= manifest.MAX_TEXT_BYTES
    embed.embed(bytes(data), content_type, TEXT)


@every_file
@pytest.mark.parametrize("text", [TEXT, LONG], ids=["short", "long"])
def test_embedding_in_a_file_equals_embedding_in_bytes(name: str, text: str, tmp_path: Path) -> None:
    content_type, data = encoded_file(name)
    path = tmp_path / "staged"
    for before in (data, embed.embed(data, content_type, LONG)):
        path.write_bytes(before)
        embed.embed_file(path, content_type, text)
        assert path.read_bytes() == embed.embed(before, content_type, text)
    assert list(tmp_path.iterdir()) == [path]


def test_large_video_is_not_loaded_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with path.open("wb") as file:
        file.write(b"\0\0\0\x10ftypisom\0\0\0\0" + (200 << 20).to_bytes(4) + b"mdat")
        file.truncate(16 + (200 << 20))
    tracemalloc.start()
    try:
        embed.embed_file(path, "video/mp4", TEXT)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with path.open("rb") as file:
        file.seek(200 << 20)
        assert TEXT.encode() in file.read()
