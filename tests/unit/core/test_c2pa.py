"""C2PA manifests in real files, read by the C2PA library's own reader."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import MediaLimits, StagedFile
from sixfold.core.provenance import c2pa_definition, c2pa_removal, certificates, embed, manifest, signing
from sixfold.core.provenance.certificates import InvalidCertificate
from sixfold.core.provenance.content_credentials import ContentCredentials, SigningFailed
from sixfold.store.file_store import FileStore
from tests.harness.waiting import wait_until
from tests.unit.core import test_manifest_containers as containers

c2pa: Any = pytest.importorskip("c2pa", reason="needs the extra `c2pa`")

from sixfold.app import c2pa_signer  # noqa: E402 - imports c2pa

C2paSigner = c2pa_signer.C2paSigner
PARENT = f"blake3:{64 * 'a'}"
MANIFEST = manifest.Manifest(
    model="ra1",
    inputs={"prompt": "a secret fox"},
    engine="weights-image",
    engine_version="3",
    quality="full",
    prediction_id="pred_1",
    parents=(PARENT,),
)
TEXT = signing.Signer(bytes(32)).sign(MANIFEST)
CHAIN, KEY = certificates.create("Example", 30)
UNUSED: Any = None
LIMITS = MediaLimits(2**20, 1_000_000, 5, 2**30, 1)
FILES = {
    "image/png": lambda: containers.image("PNG"),
    "image/jpeg": lambda: containers.image("JPEG"),
    "image/webp": lambda: containers.image("WEBP"),
    "image/gif": lambda: containers.moving("GIF"),
    "video/mp4": lambda: containers.video("mp4", "libx264"),
    "video/quicktime": lambda: containers.video("mov", "libx264"),
    "audio/mp4": lambda: containers.sound("ipod", "aac"),
    "audio/wav": lambda: containers.sound("wav", "pcm_s16le"),
}


def signed(data: bytes, media_type: str) -> bytes:
    target = io.BytesIO()
    definition = c2pa_definition.definition(MANIFEST, "weights")
    C2paSigner(CHAIN, KEY)(io.BytesIO(data), target, media_type, definition)
    return target.getvalue()


def verdict(data: bytes, media_type: str) -> tuple[str, dict[str, Any]]:
    """Return the verdict of the reader and its whole report."""
    with c2pa.Reader(media_type, io.BytesIO(data)) as reader:
        return reader.get_validation_state(), json.loads(reader.json())


def test_every_signed_media_type_has_a_test_file() -> None:
    assert FILES.keys() == c2pa_definition.MEDIA_TYPES


@pytest.mark.parametrize("media_type", FILES)
def test_reader_accepts_the_file_and_both_manifests_can_be_read(media_type: str) -> None:
    before = embed.embed(FILES[media_type](), media_type, TEXT)
    data = signed(before, media_type)
    state, report = verdict(data, media_type)
    assert state == "Valid"
    # The certificate is not on a list of trusted certificates, and that is the only reservation.
    assert [each["code"] for each in report["validation_status"]] == ["signingCredential.untrusted"]
    assert embed.extract(data) == TEXT
    assert signing.Signer(bytes(32)).read(TEXT).valid
    assert c2pa_removal.remove(data) == before
    assert c2pa_removal.remove(before) == before


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "video/mp4", "audio/wav"])
def test_reader_detects_a_changed_file(media_type: str) -> None:
    data = bytearray(signed(embed.embed(FILES[media_type](), media_type, TEXT), media_type))
    at = data.rindex(b"a secret fox")
    data[at] ^= 1
    assert verdict(bytes(data), media_type)[0] == "Invalid"


def test_reader_with_the_root_as_an_anchor_trusts_the_file() -> None:
    data = signed(FILES["image/png"](), "image/png")
    root = CHAIN[CHAIN.rindex(b"-----BEGIN") :].decode()
    trusting = c2pa.Settings.from_dict({"trust": {"trust_anchors": root}, "verify": {"verify_trust": True}})
    with (
        c2pa.Context(trusting) as context,
        c2pa.Reader("image/png", io.BytesIO(data), context=context) as reader,
    ):
        assert reader.get_validation_state() == "Trusted"


def test_manifest_states_the_origin_without_the_prompt() -> None:
    _, report = verdict(signed(FILES["image/png"](), "image/png"), "image/png")
    active = report["manifests"][report["active_manifest"]]
    (action,) = active["assertions"][0]["data"]["actions"]
    assert action["action"] == "c2pa.created"
    assert action["digitalSourceType"].endswith("/compositeWithTrainedAlgorithmicMedia")
    assert action["softwareAgent"] == {"name": "ra1 (weights-image)", "version": "3"}
    assert active["claim_generator_info"][0]["name"] == "Sixfold"
    assert [each["title"] for each in active["ingredients"]] == [PARENT]
    assert active["signature_info"]["issuer"] == "Example"
    assert "time" not in active["signature_info"]
    assert "fox" not in json.dumps(report)


@pytest.mark.parametrize(
    ("kind", "has_parents", "name"),
    [
        ("weights", False, "trainedAlgorithmicMedia"),
        (None, False, "trainedAlgorithmicMedia"),
        ("relay", True, "compositeWithTrainedAlgorithmicMedia"),
        ("embedded", False, "algorithmicMedia"),
        ("embedded", True, "algorithmicallyEnhanced"),
        ("graph", False, "compositeSynthetic"),
    ],
)
def test_source_type_depends_on_the_engine(kind: str | None, has_parents: bool, name: str) -> None:
    assert c2pa_definition.source_type(kind, has_parents=has_parents).endswith(f"/{name}")


def test_unusable_pairs_are_refused_with_the_reason() -> None:
    _, other = certificates.create("Other", 30)
    for chain, key, reason in (
        (CHAIN, other, "does not belong"),
        (b"none", KEY, "certificates as PEM"),
        (CHAIN, b"none", "private key as PEM"),
    ):
        with pytest.raises(InvalidCertificate, match=reason):
            C2paSigner(chain, key)
    with pytest.raises(InvalidCertificate, match="days must be from 1 to 3650"):
        certificates.create("Example", 0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def stored_file(tmp_path: Path, media_type: str, data: bytes, credentials: ContentCredentials) -> bytes:
    """Return the file that storing an output leaves in the blob store."""
    staged = tmp_path / "staged"
    staged.write_bytes(data)
    store = FileStore(tmp_path / "blobs")
    media = MediaService(UNUSED, store, UNUSED, UNUSED, LIMITS)
    media.credentials = credentials
    file = StagedFile(staged, media_type, {})
    (output,) = (await media.store_outputs("pred_1", "acct_1", (file,), (TEXT,))).files
    assert names(tmp_path) == ["blobs"]
    result = await store.get(output.blob)
    assert output.size == len(result)
    return result


@pytest.mark.parametrize("padding", [0, 5 << 20])
async def test_output_is_stored_with_both_manifests(tmp_path: Path, padding: int) -> None:
    credentials = ContentCredentials(C2paSigner(CHAIN, KEY), {"weights-image": "weights"}.get)
    data = FILES["video/mp4"]() + (8 + padding).to_bytes(4) + b"free" + os.urandom(padding)
    result = await stored_file(tmp_path, "video/mp4", data, credentials)
    assert verdict(result, "video/mp4")[0] == "Valid"
    assert embed.extract(result) == TEXT


async def test_output_that_cannot_be_signed_keeps_its_own_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(source: BinaryIO, target: BinaryIO, media_type: str, definition: dict[str, Any]) -> None:
        raise SigningFailed("no")

    data = FILES["image/png"]()
    own = embed.embed(data, "image/png", TEXT)
    none = {}.get
    signer = C2paSigner(CHAIN, KEY)
    assert await stored_file(tmp_path, "image/png", data, ContentCredentials(fail, none)) == own
    assert (
        await stored_file(tmp_path, "image/png", data, ContentCredentials(signer, none, max_bytes=10)) == own
    )
    broken = own[:-12]
    assert await stored_file(tmp_path, "image/jpeg", broken, ContentCredentials(signer, none)) == broken
    assert len([each for each in caplog.messages if "has no C2PA manifest" in each]) == 3
    ogg = containers.sound("ogg", "libopus")
    assert c2pa_removal.remove(
        await stored_file(tmp_path, "audio/ogg", ogg, ContentCredentials(signer, none))
    )


async def test_slow_signing_times_out(tmp_path: Path) -> None:
    may_end = threading.Event()

    def stall(source: BinaryIO, target: BinaryIO, media_type: str, definition: dict[str, Any]) -> None:
        target.write(b"half")
        may_end.wait()

    credentials = ContentCredentials(stall, {}.get, max_seconds=0.05)
    path = tmp_path / "image"
    data = FILES["image/png"]()
    path.write_bytes(data)
    assert not await credentials.sign(path, "image/png", TEXT)
    may_end.set()
    await wait_until(lambda: len(names(tmp_path)) <= 1, 30)
    assert path.read_bytes() == data


def test_check_distinguishes_signed_changed_and_unsigned() -> None:
    own = embed.embed(FILES["image/png"](), "image/png", TEXT)
    data = signed(own, "image/png")
    assert c2pa_signer.check(io.BytesIO(data), "image/png") == "valid"
    assert (
        c2pa_signer.check(io.BytesIO(data.replace(b"a secret fox", b"a secret cat")), "image/png")
        == "invalid"
    )
    assert c2pa_signer.check(io.BytesIO(own), "image/png") == "none"


@pytest.mark.parametrize(
    ("codes", "result"),
    [
        (("signingCredential.expired", "signingCredential.untrusted"), "expired"),
        (("signingCredential.expired", "assertion.dataHash.mismatch"), "invalid"),
        ((), "invalid"),
    ],
)
def test_an_expired_certificate_differs_from_a_changed_file(codes: tuple[str, ...], result: str) -> None:
    statuses = [{"code": code} for code in codes]
    report = {"validation_state": "Invalid", "validation_status": statuses}
    assert c2pa_signer.verdict(report) == result
