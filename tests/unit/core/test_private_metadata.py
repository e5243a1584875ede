"""Copies of files without the metadata that may contain a prompt: pixels, frames and sound are unchanged."""

from __future__ import annotations

import errno
import io
import re
import struct
from pathlib import Path
from typing import Any
from xml.parsers import expat

import av
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageSequence, TiffImagePlugin
from PIL.PngImagePlugin import PngInfo

from sixfold.core.provenance import c2pa_removal, embed, private_metadata, redaction, svg_metadata
from sixfold.core.provenance.formats import edits, jpeg, png
from sixfold.core.workflows import image_metadata
from tests.harness import image_files
from tests.unit.core.test_manifest_containers import (
    FILES,
    IMAGES,
    SVG,
    TEXT,
    decoded_frames,
    encoded_file,
    glb,
    moving,
    picture,
)

GRAPH = {"1": {"class_type": "Text", "inputs": {"text": "a secret prompt"}}}
SECRETS = (b"secret", "Löwe".encode(), b"Lavf", b"hello")


def private_copy(path: Path, data: bytes, content_type: str) -> bytes:
    path.write_bytes(data)
    private_metadata.remove(path)
    embed.embed_file(path, content_type, "{}")
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_c2pa_manifest_is_removed_with_other_metadata(kind: str, tmp_path: Path) -> None:
    data = image_files.encode(Image.new("RGB", (8, 8)), kind)
    parts = {
        "png": (33, png.chunk(b"caBX", b"claim") + png.chunk(b"tEXt", b"a\0secret")),
        "jpeg": (2, jpeg.segment(0xEB, b"JPclaim") + jpeg.segment(0xFE, b"secret")),
    }
    at, manifest = parts[kind]
    (path := tmp_path / "file").write_bytes(data[:at] + manifest + data[at:])
    assert c2pa_removal.edits_of(path.read_bytes()) != []
    private_metadata.remove(path)
    assert not re.search(b"claim|secret", path.read_bytes())


@pytest.mark.parametrize("name", [name for name in FILES if name != "svg"])
def test_copy_has_no_prompt_and_the_same_content(name: str, tmp_path: Path) -> None:
    content_type, data = encoded_file(name)
    if content_type in ("image/png", "image/webp"):
        data = image_metadata.embed(data, GRAPH, GRAPH)
    copy = private_copy(tmp_path / "file", embed.embed(data, content_type, TEXT), content_type)
    assert embed.extract(copy) == "{}"
    if name in IMAGES:
        first, second = (np.asarray(Image.open(io.BytesIO(each))) for each in (data, copy))
        assert np.array_equal(first, second)
    elif name != "glb":
        assert decoded_frames(copy) == decoded_frames(data)
    # WebM files and the first frame of MP3 files name the encoder.
    if content_type not in ("video/webm", "audio/webm", "video/x-matroska", "audio/mpeg"):
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


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("turn", [1, 6])
def test_orientation_of_a_photo_is_all_that_remains_of_exif(kind: str, turn: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = "a secret prompt", turn
    exif.get_ifd(0x8825)[2] = (48.0, 12.0, 1.0)  # Tag 2 of GPS is the latitude.
    data = image_files.encode(picture("RGB"), kind, exif=exif)
    path = tmp_path / "file"
    for _ in range(2):
        copy = private_copy(path, data, f"image/{kind.lower()}")
        assert dict(Image.open(io.BytesIO(copy)).getexif()) == ({0x0112: turn} if turn > 1 else {})
        assert b"secret" not in copy
        assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(data)).tobytes()
        data = copy


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


@pytest.mark.parametrize(("number", "name"), [(0xE0, b"JFXX\0"), (0xE2, b"FPXR\0"), (0xEE, b"Other")])
def test_segments_with_the_number_of_a_kept_one_are_removed(number: int, name: bytes, tmp_path: Path) -> None:
    plain = image_files.encode(picture("CMYK"), "JPEG")
    first = 4 + int.from_bytes(plain[4:6])
    segment = jpeg.segment(number, name + b"a secret thumbnail")
    copy = private_copy(tmp_path / "file", plain[:first] + segment + plain[first:], "image/jpeg")
    assert b"secret" not in copy
    assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(plain)).tobytes()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("PNG", "RGB"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("BMP", "RGB"),
        ("BMP", "P"),
        ("BMP", "1"),
        ("JPEG", "RGB"),
        ("JPEG", "CMYK"),
    ],
)
def test_bytes_after_an_image_are_removed(kind: str, mode: str, tmp_path: Path) -> None:
    data = image_files.encode(picture(mode), kind)
    copy = private_copy(tmp_path / "file", data + b"a secret prompt", f"image/{kind.lower()}")
    assert b"secret" not in copy
    assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(data)).tobytes()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_video_behind_a_photo_is_removed(options: dict[str, Any], tmp_path: Path) -> None:
    # As in a motion photo, with a thumbnail, which has an end marker of its own.
    thumbnail = b"\xff\xe2" + (2 + 4 + 2).to_bytes(2) + b"tiny\xff\xd9"
    plain = image_files.encode(picture("RGB"), "JPEG", **options)
    data = plain[:2] + thumbnail + plain[2:]
    video = box(b"ftyp", b"mp42secret") + box(b"moov", box(b"udta", b"a secret place"))
    copy = private_copy(tmp_path / "file", data + video, "image/jpeg")
    assert b"secret" not in copy
    assert copy.endswith(plain[-200:])
    assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(plain)).tobytes()


def test_images_and_videos_behind_an_indexed_photo_are_removed(tmp_path: Path) -> None:
    # Phones take motion photos with a second image for HDR, which has Exif of its own.
    exif = Image.Exif()
    exif[0x010E] = "a secret place"
    second = picture("RGB")
    second.encoderinfo = {"exif": exif}
    data = image_files.encode(picture("RGB"), "MPO", save_all=True, append_images=[second])
    data += box(b"ftyp", b"mp42") + box(b"moov", box(b"udta", b"a secret place"))
    copy = private_copy(tmp_path / "file", data, "image/jpeg")
    assert (data.count(b"secret"), b"secret" in copy, b"MPF" in copy) == (2, False, False)
    image: Any = Image.open(io.BytesIO(copy))
    assert (image.format, image.tobytes()) == ("JPEG", Image.open(io.BytesIO(data)).tobytes())


@pytest.mark.parametrize("end", [b"", b"a secret prompt"])
def test_private_parts_of_a_bmp_are_removed(end: bytes, tmp_path: Path) -> None:
    plain = image_files.encode(picture("RGB"), "BMP")
    gap = b"a secret prompt."
    data = plain[:10] + (54 + len(gap)).to_bytes(4, "little") + plain[14:54] + gap + plain[54:] + end
    copy = private_copy(tmp_path / "file", data, "image/bmp")
    assert (b"secret" in data, b"secret" in copy) == (True, False)
    assert Image.open(io.BytesIO(copy)).tobytes() == Image.open(io.BytesIO(plain)).tobytes()


TIFF_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lzw": {"compression": "tiff_lzw"},
    "jpeg": {"compression": "jpeg"},
    "big": {"big_tiff": True},
}
TIFF_MODES = ("RGB", "RGBA", "P", "L", "1", "I;16")


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (mode, name)
        for name in TIFF_OPTIONS
        for mode in TIFF_MODES
        # JPEG has no other pixels.
        if name != "jpeg" or mode in ("RGB", "L")
    ],
)
def test_private_parts_of_a_tiff_are_removed(mode: str, name: str, tmp_path: Path) -> None:
    options = TIFF_OPTIONS[name]
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[270] = "a secret prompt"
    tags[700] = b"<x:xmpmeta>a secret prompt</x:xmpmeta>"
    if "compression" not in options:
        tags[34665] = {37510: b"a secret prompt"}
    tags[65000] = "a secret prompt"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    images = [picture("L").convert("I;16") if mode == "I;16" else picture(mode) for _ in range(2)]
    data = image_files.encode(
        images[0],
        "TIFF",
        save_all=True,
        append_images=images[1:],
        tiffinfo=tags,
        icc_profile=profile,
        **options,
    )
    copy = private_copy(tmp_path / "file", data + b"a secret prompt", "image/tiff")
    assert (b"secret" in data, b"secret" in copy) == (True, False)
    before, after = (Image.open(io.BytesIO(each)) for each in (data, copy))
    assert after.info["icc_profile"] == profile
    for index in range(2):
        before.seek(index)
        after.seek(index)
        assert (after.tobytes(), after.mode) == (before.tobytes(), before.mode)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_private_items_of_an_avif_are_removed(mode: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a secret prompt"
    xmp = b"<x:xmpmeta>a secret prompt</x:xmpmeta>"
    for frames in ([], [picture(mode)]):
        data = image_files.encode(
            picture(mode), "AVIF", exif=exif, xmp=xmp, save_all=bool(frames), append_images=frames
        )
        copy = private_copy(tmp_path / "file", data, "image/avif")
        assert (b"secret" in data, b"secret" in copy) == (True, False)
        before, after = (Image.open(io.BytesIO(each)) for each in (data, copy))
        assert (after.tobytes(), dict(after.getexif())) == (before.tobytes(), {})


DRAWN = '<g ><rect width="9" xlink:href="#a" style="fill:red"/><text >x="1"</text></g>'
SECRET_SVG = f"""<?xml version="1.0"?><?editor secret?><!-- secret -->
<svg xmlns="http://www.w3.org/2000/svg" xmlns:i="http://inkscape.example" data-prompt="secret"
  i:label='secret' aria-label="secret" xmlns:xlink="http://www.w3.org/1999/xlink" width="9">
<title>secret <b>secret</b></title>
<metadata id="a"><x/>secret</metadata><desc i:a="/>">secret</desc><i:view secret="/"/><i:view>secret</i:view>
<!-- secret --><title a=">secret"/><metadata />{DRAWN}<title />y="2"<foreignObject><p xmlns="http://www.w3.org/1999/xhtml">drawn
<b>too</b></p></foreignObject></svg><!-- secret -->"""


@pytest.mark.parametrize("prefix", ["", "s:"])
def test_private_parts_of_an_svg_are_removed(prefix: str, tmp_path: Path) -> None:
    text = SECRET_SVG
    if prefix:
        for name in ("svg", "title", "metadata", "desc", "g", "rect", "text", "foreignObject"):
            text = re.sub(rf"<(/?){name}(?=[ />])", rf"<\1s:{name}", text)
        text = text.replace('xmlns="http://www.w3.org/2000/svg', 'xmlns:s="http://www.w3.org/2000/svg')
    data = embed.embed(text.encode(), "image/svg+xml", TEXT)
    copy = private_copy(tmp_path / "file", data, "image/svg+xml")
    assert (b"secret" in copy, "Löwe".encode() in copy, embed.extract(copy)) == (False, False, "{}")
    expat.ParserCreate(namespace_separator=" ").Parse(copy, True)
    drawn = DRAWN.replace("<", f"<{prefix}").replace(f"<{prefix}/", f"</{prefix}") if prefix else DRAWN
    assert drawn.encode() in copy
    assert (b"<b>too</b></p>" in copy, b'y="2"' in copy) == (True, True)


def test_svg_of_this_server_is_drawn_as_before(tmp_path: Path) -> None:
    copy = private_copy(tmp_path / "file", SVG.encode(), "image/svg+xml")
    assert b'<svg xmlns="http://www.w3.org/2000/svg" width="9">' in copy
    assert b"<g/></svg>" in copy


@pytest.mark.parametrize("name", ["wav", "odd wav", "mp3", "mp3 without id3", "flac", "opus", "vorbis"])
def test_tags_of_sounds_are_removed(name: str, tmp_path: Path) -> None:
    # As ComfyUI's SaveAudio writes the graph.
    content_type, data = encoded_file(name)
    container = {"wav": "wav", "mpeg": "mp3", "flac": "flac", "ogg": "ogg"}[content_type.partition("/")[2]]
    tagged = tagged_sound(container, data)
    if container == "mp3":
        tagged += b"TAG" + b"a secret prompt".ljust(125, b"\0")
    if container == "wav":
        tagged += b"a secret prompt"
    copy = private_copy(tmp_path / "file", tagged, content_type)
    assert (b"secret" in tagged, b"secret" in copy, embed.extract(copy)) == (True, False, "{}")
    assert decoded_frames(copy)[1] == decoded_frames(tagged)[1]


def tagged_sound(container: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with av.open(io.BytesIO(data), "r") as source, av.open(file, "w", format=container) as out:
        tags = {"title": "a secret prompt", "prompt": '{"text": "a secret prompt"}'}
        out.metadata.update(tags)
        stream = out.add_stream_from_template(source.streams[0])
        stream.metadata.update(tags)
        packets: Any = source.demux(source.streams[0])
        for packet in packets:
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    return file.getvalue()


def test_extras_of_a_glb_are_removed(tmp_path: Path) -> None:
    # As ComfyUI's SaveGLB writes the graph.
    asset = '{"version":"2.0","generator":"a secret prompt","extras":{"prompt":"a secret prompt"}}'
    data = glb(f'{{"asset":{asset},"extras":{{"a":"secret"}},"x":1.50}}')
    data += struct.pack("<I4s", 8, b"PRMT") + b"secret.."
    data = data[:8] + len(data).to_bytes(4, "little") + data[12:]
    copy = private_copy(tmp_path / "file", data, "model/gltf-binary")
    assert (b"secret" in copy, embed.extract(copy)) == (False, "{}")
    assert (b'"x":1.50' in copy, copy[-8:]) == (True, b"12345678")
    assert int.from_bytes(copy[8:12], "little") == len(copy)


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


@pytest.mark.parametrize("is_fixed", [True, False])
@pytest.mark.parametrize("name", ["mp4", "mov"])
def test_data_tracks_of_a_video_are_removed(name: str, is_fixed: bool, tmp_path: Path) -> None:
    # As the places that action cameras store each second; the index is at the end, so no offset changes.
    content_type, data = encoded_file(name)
    index = data.rindex(b"moov") - 4
    samples = (
        [b"a secret", b" place,", b" secret"] if not is_fixed else [b"secret 1", b"secret 2", b"secret 3"]
    )
    sizes = [8, 3] if is_fixed else [0, 3, *map(len, samples)]
    places = [len(data) + 4096, len(data) + 4096 + len(b"".join(samples[:2]))]
    tables = {b"stsc": (2, 1, 2, 1, 2, 1, 1), b"stsz": sizes, b"stco": (2, *places)}
    table = b"".join(box(kind, struct.pack(f">I{len(row)}I", 0, *row)) for kind, row in tables.items())
    handler = box(b"hdlr", bytes(8) + b"meta" + bytes(13))
    media = box(b"mdia", handler + box(b"minf", box(b"stbl", table)))
    track = box(b"trak", box(b"udta", b"secret") + media)
    movie = data[:index] + box(b"moov", data[index + 8 :] + track)
    data = movie + box(b"free", bytes(places[0] - 16 - len(movie)))
    data += box(b"mdat", b"".join(samples) + b"the end")
    copy = private_copy(tmp_path / "file", data, content_type)
    assert (data.count(b"secret"), copy.count(b"secret"), b"the end" in copy) == (3 + is_fixed, 0, True)
    assert decoded_frames(copy) == decoded_frames(encoded_file(name)[1])


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
        out.metadata.update({"title": "a secret title", "creation_time": "2020-01-02T03:04:05Z"})
        stream: Any = out.add_stream("libvpx-vp9", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.metadata["title"] = "a secret name"
        for value in range(0, 250, 50):
            pixels = np.full((48, 64, 3), value, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())
    data = path.read_bytes()
    copy = private_copy(tmp_path / "file", data, "video/webm")
    assert (data.count(b"secret"), b"secret" in copy, embed.extract(copy)) == (3, False, "{}")
    assert decoded_frames(copy) == decoded_frames(data)
    with av.open(io.BytesIO(copy)) as file:
        assert "creation_time" not in file.metadata


def png_frames(data: bytes) -> list[tuple[Any, ...]]:
    with Image.open(io.BytesIO(data)) as animation:
        return [
            (frame.tobytes(), frame.info["duration"], frame.info["loop"], frame.info["dpi"])
            for frame in ImageSequence.Iterator(animation)
        ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\x10\0\0\0WEBPVP8X",
        b"GIF89a",
        b"plain text",
        b"II*\0\xff\0\0\0",
        b"BM" + bytes(12) + b"\x28\0\0\0" + bytes(40),
        b"fLaC\x80\0\0\0",
        b"ID3\4\0\0\0\0\0\0",
        b"OggS\0",
        b"glTF\2\0\0\0",
        b"<svg><g></svg>",
        b"<svg><title/>" + b" " * svg_metadata.MAX_BYTES + b"</svg>",
        b'<!DOCTYPE svg [<!ENTITY e "<title>a</title>">]><svg>&e;</svg>',
    ],
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
