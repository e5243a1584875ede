"""Manifests: canonical text, signature and redacted inputs."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import blake3
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold import __version__
from sixfold.core.provenance import manifest as provenance_manifest
from sixfold.core.provenance import redaction, signing
from tests.harness import image_files

SIGNER = signing.Signer(bytes(range(32)))
FOREIGN = signing.Signer(bytes(32))
MANIFEST = provenance_manifest.Manifest(
    model="ra1",
    inputs={"prompt": 'ein Löwe 🦁 <svg> & "Zitat"', "steps": 30, "strength": 0.8, "loras": []},
    engine="scene",
    engine_version="3",
    quality="preview",
    seed=7,
    parents=("blake3:" + "ab" * 32,),
    prediction_id="pred_01",
    index=1,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_signed_manifest_is_read_as_trusted_and_equal() -> None:
    signed = SIGNER.read(SIGNER.sign(MANIFEST))
    assert signed == signing.SignedManifest(MANIFEST, SIGNER.key, intact=True, trusted=True)
    assert signed.valid
    assert signed.manifest.software == f"sixfold {__version__}"


def test_manifest_text_is_canonical_and_deterministic() -> None:
    text = SIGNER.sign(MANIFEST)
    result = msgspec.json.decode(text)
    assert text == signing.Signer(bytes(range(32))).sign(MANIFEST)
    assert list(result) == sorted(result)
    assert text.startswith('{"engine":"scene","engine_version":"3","format":"sixfold-manifest/1","index":1,')
    assert (result["format"], result["key"]) == ("sixfold-manifest/1", SIGNER.key)
    assert "Löwe 🦁" in text


def test_text_is_independent_of_the_order_of_inputs() -> None:
    ordered = msgspec.structs.replace(MANIFEST, inputs={"a": 1, "b": {"c": 2, "d": 3}})
    other = msgspec.structs.replace(MANIFEST, inputs={"b": {"d": 3, "c": 2}, "a": 1})
    assert SIGNER.sign(ordered) == SIGNER.sign(other)


def test_manifest_of_format_1_is_read() -> None:
    signed = SIGNER.read(
        '{"engine":"e","engine_version":"1","format":"sixfold-manifest/1","index":0,"inputs":{"p":"x"},'
        '"key":"ed25519:A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg","model":"m","parents":[],'
        '"prediction_id":"pred_1","quality":"full","seed":null,"signature":"n3My77hy2NMG2di9MiUhRuNJzqMBvD8M3NSv9sSNjEE'
        'PP7L1a9PKEB1VcV4M9rcntMEHtZB8A-Sfir03-4FQAQ","software":"sixfold 0"}'
    )
    assert signed.valid
    assert signed.manifest.inputs == {"p": "x"}


def test_every_changed_byte_makes_the_manifest_invalid() -> None:
    raw = SIGNER.sign(MANIFEST).encode()
    for at in range(len(raw)):
        for mask in (0x01, 0x20, 0x80):
            changed_bytes = raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]
            try:
                assert not SIGNER.read(changed_bytes.decode()).valid, at
            except (provenance_manifest.NotAManifest, UnicodeDecodeError):
                continue


@pytest.mark.parametrize("change", [" ", "\n", "\0", "{}"])
def test_manifest_with_added_text_is_invalid(change: str) -> None:
    text = SIGNER.sign(MANIFEST)
    for changed_text in (text + change, change + text, text.replace(",", "," + change, 1)):
        try:
            assert not SIGNER.read(changed_text).valid
        except provenance_manifest.NotAManifest:
            continue


def test_a_repeated_name_and_a_padded_signature_are_invalid() -> None:
    text = SIGNER.sign(MANIFEST)
    signature = msgspec.json.decode(text)["signature"]
    assert not SIGNER.read(text.replace('"index":1', '"index":0,"index":1')).valid
    assert not SIGNER.read(text.replace(signature, signature + "==")).valid


def test_foreign_manifest_is_intact_but_not_trusted() -> None:
    signed = SIGNER.read(FOREIGN.sign(MANIFEST))
    assert (signed.intact, signed.trusted, signed.valid) == (True, False, False)
    assert signed.signed_by == FOREIGN.key
    assert signed.manifest == MANIFEST


def test_foreign_signature_with_our_key_name_is_invalid() -> None:
    signed = SIGNER.read(FOREIGN.sign(MANIFEST).replace(FOREIGN.key, SIGNER.key))
    assert (signed.intact, signed.valid) == (False, False)


def test_signature_by_a_retired_key_is_trusted() -> None:
    newer = signing.Signer(bytes([1] * 32), retired=[SIGNER.key])
    assert newer.read(SIGNER.sign(MANIFEST)).valid


def test_verification_needs_only_the_public_key() -> None:
    text = SIGNER.sign(MANIFEST)
    assert signing.verify(text, [SIGNER.key]).valid
    assert not signing.verify(text, []).valid


def test_manifest_without_a_signature_has_no_signer() -> None:
    signed = SIGNER.read(provenance_manifest.canonical(provenance_manifest.document(MANIFEST)))
    assert (signed.manifest, signed.signed_by, signed.valid) == (MANIFEST, "", False)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "{}",
            "[]",
            "null",
            "[" * 100_000,
            "\ud800",
            "9" * 5000,
            "x" * 300_000,
            '{"format":' + "[" * 9000,
        ),
        *('{"format":"sixfold-manifest/2"}', '{"format":"sixfold-manifest/1","model":1}'),
    ],
)
def test_invalid_manifest_is_refused(text: str) -> None:
    with pytest.raises(provenance_manifest.NotAManifest):
        SIGNER.read(text)


def test_a_manifest_over_256_kib_is_refused() -> None:
    large = msgspec.structs.replace(MANIFEST, inputs={"prompt": "x" * provenance_manifest.MAX_TEXT_BYTES})
    with pytest.raises(provenance_manifest.ManifestTooLarge):
        SIGNER.sign(large)


def test_unknown_later_field_keeps_the_signature_valid() -> None:
    document = {**provenance_manifest.document(MANIFEST), "key": "ed25519:x", "later": [1]}
    manifest, result = provenance_manifest.parse(provenance_manifest.canonical(document))
    assert manifest == MANIFEST
    assert result["later"] == [1]


@given(st.text())
@settings(deadline=None)
def test_any_prompt_is_signed_read_and_valid_xml(prompt: str) -> None:
    manifest = msgspec.structs.replace(MANIFEST, inputs=redaction.clean({"prompt": prompt}))
    text = SIGNER.sign(manifest)
    assert SIGNER.read(text).valid
    assert not set(text) & {*map(chr, range(32)), "\x7f", "\x85", "\ufffe", "\uffff", "\u2028"}


@given(st.dictionaries(st.text(), json_values, max_size=5))
@settings(deadline=None)
def test_any_inputs_give_a_valid_stable_manifest(given_inputs: dict[str, object]) -> None:
    cleaned = redaction.clean(given_inputs)
    signed = SIGNER.read(SIGNER.sign(msgspec.structs.replace(MANIFEST, inputs=cleaned)))
    assert signed.valid
    assert redaction.clean(cleaned) == cleaned


def test_data_uri_is_replaced_by_the_digest_of_its_content() -> None:
    content = bytes(range(256))
    uri = image_files.data_uri(content)
    cleaned = redaction.clean({"image": uri, "mask": "data:,a%20b"})
    digest = blake3.blake3(content).hexdigest()
    assert cleaned["image"] == {"blake3": digest, "bytes": 256, "media_type": "image/png"}
    assert cleaned["mask"]["bytes"] == 3
    assert redaction.replaced(cleaned) == ["image", "mask"]


def test_long_strings_and_bytes_become_digests_and_prompts_stay() -> None:
    cleaned = redaction.clean({"prompt": "a lion " * 500, "file": b"abc", "page": "x" * 20_000})
    assert cleaned["prompt"] == "a lion " * 500
    assert cleaned["file"]["bytes"] == 3
    assert cleaned["page"]["bytes"] == 20_000


def test_credentials_are_removed_from_urls() -> None:
    cleaned = redaction.clean(
        {
            "plain": "https://example.org/a.png",
            "signed": "https://example.org/a.png?token=secret",
            "account": ["http://me:secret@example.org:8080/b.png"],
            "prose": "https://example.org?x is a page",
        }
    )
    assert cleaned["plain"] == "https://example.org/a.png"
    assert cleaned["signed"] == {"url": "https://example.org/a.png", "withheld": "query"}
    assert cleaned["account"] == [{"url": "http://example.org:8080/b.png", "withheld": "part"}]
    assert cleaned["prose"] == "https://example.org?x is a page"
    assert redaction.replaced(cleaned) == ["account.0", "signed"]


def test_long_non_ascii_urls_become_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def split(url: str) -> SplitResult:
        parsed.append(url)
        return urlsplit(url)

    monkeypatch.setattr(redaction, "urlsplit", split)
    host = "http://a" + "\u0316\u0301" * 2_000
    path = f"http://a/{'b' * 3_000}?c"
    cleaned = redaction.clean({"long": host, "short": "http://müller.example/?a", "path": path})
    assert cleaned["long"]["bytes"] == len(host.encode())
    assert cleaned["short"]["withheld"] == cleaned["path"]["withheld"] == "query"
    assert host not in parsed


def test_many_inputs_are_reduced_to_the_size_limit() -> None:
    medium = redaction.clean({f"p{index}": "word " * 200 for index in range(1000)})
    assert medium["p0"]["bytes"] == 1000
    huge = redaction.clean({f"p{index}": "word" for index in range(20_000)})
    assert set(huge) == {"blake3", "bytes"}
    assert redaction.replaced(huge) == [""]
    escaped = redaction.clean({f"p{index}": "\x85" * 1000 for index in range(90)})
    assert escaped["p0"]["bytes"] == 2000, "what counts is the text with its escapes"
    for cleaned in (medium, huge, escaped):
        assert SIGNER.read(SIGNER.sign(msgspec.structs.replace(MANIFEST, inputs=cleaned))).valid


def test_manifest_holds_the_largest_inputs_and_all_parents() -> None:
    largest = redaction.clean({f"p{index}": "x" * 16_000 for index in range(12)})
    assert not redaction.replaced(largest)
    parents = ("blake3:" + "ab" * 32,) * provenance_manifest.MAX_PARENTS
    manifest = msgspec.structs.replace(MANIFEST, inputs=largest, parents=parents)
    assert SIGNER.read(SIGNER.sign(manifest)).valid


def test_deeply_nested_inputs_are_truncated() -> None:
    nested: list[object] = []
    for _ in range(200):
        nested = [nested]
    assert SIGNER.read(
        SIGNER.sign(msgspec.structs.replace(MANIFEST, inputs=redaction.clean({"n": nested})))
    ).valid
