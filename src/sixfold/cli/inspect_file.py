"""`inspect`: show the manifest of a file and verify its signature."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

import msgspec

from sixfold import import_string, settings
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.provenance import c2pa_definition, c2pa_removal, embed, signing
from sixfold.core.provenance import manifest as provenance_manifest
from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.manifest import Manifest

SERVER_KEY = "server.key"
_MAX_BYTES = 4 << 30
_SIGNATURE_TEXTS = {
    "ours": "valid, signed by this server",
    "foreign": "valid, signed by another server",
    "invalid": "invalid: the manifest was changed after it was signed",
}
_C2PA_TEXTS = {
    "valid": "valid, the file is unchanged since it was signed",
    "expired": "expired: the file is unchanged, but its certificate has expired",
    "invalid": "invalid: the file was changed after it was signed",
    "unchecked": "not checked: run pip install 'sixfold[c2pa]'",
}
Verdict = Literal["ours", "foreign", "invalid"]
C2paVerdict = Literal["none", "valid", "expired", "invalid", "unchecked"]


class FileProvenance(msgspec.Struct, frozen=True):
    """A file's bytes, the text of its manifest, the parsed manifest and the result of the signature check."""

    data: bytes
    text: str
    manifest: Manifest
    signature: Verdict
    signed_by: str


def inspect(arguments: argparse.Namespace) -> None:
    """Run `inspect`: print the manifest of a file and who signed it."""
    provenance = read(Path(arguments.file), settings.load(data_dir=arguments.data_dir).data_dir)
    c2pa = _check_c2pa(Path(arguments.file), provenance.data)
    if arguments.json:
        put_json(
            {
                "file": arguments.file,
                "signature": provenance.signature,
                "signed_by": provenance.signed_by,
                "c2pa": c2pa,
                "manifest": msgspec.to_builtins(provenance.manifest),
            }
        )
        return
    paint = TerminalStyle()
    manifest = provenance.manifest
    rows = [
        ("file", paint.bold(arguments.file)),
        ("model", manifest.model),
        ("engine", f"{manifest.engine} {manifest.engine_version}, {manifest.quality}"),
        ("prediction", f"{manifest.prediction_id}, output {manifest.index}"),
        ("signature", _SIGNATURE_TEXTS[provenance.signature]),
        ("", paint.dim(provenance.signed_by)),
        ("software", manifest.software),
    ]
    if manifest.seed is not None:
        rows.insert(3, ("seed", str(manifest.seed)))
    rows += [("C2PA", text) for text in filter(None, (_C2PA_TEXTS.get(c2pa),))]
    rows += [("parent", parent) for parent in manifest.parents]
    paint.rows(rows)
    if manifest.inputs:
        paint.line()
        paint.rows([(name, _printable(value)) for name, value in sorted(manifest.inputs.items())], indent=4)


def _check_c2pa(path: Path, data: bytes) -> C2paVerdict:
    """Return the verdict of the C2PA library; without it, only whether there is a manifest to check."""
    kind = media_types.find(data)
    if kind is None or kind.media_type not in c2pa_definition.MEDIA_TYPES:
        return "none"
    try:
        check = import_string.load("sixfold.app.c2pa_signer:check")
    except ImportError:
        return "none" if c2pa_removal.remove(data) == data else "unchecked"
    with path.open("rb") as file:
        return check(file, kind.media_type)


def _printable(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(char if char.isprintable() else "�" for char in text)


def read(path: Path, data_dir: Path) -> FileProvenance:
    """Read a file and its manifest; raises `CommandError` if the file does not contain one."""
    if path.is_dir():
        raise CommandError(f"{path} must be a file, not a folder")
    if path.stat().st_size > _MAX_BYTES:
        raise CommandError(f"{path} must be at most {_MAX_BYTES >> 30} GiB")
    data = path.read_bytes()
    text = embed.extract(data)
    if text is None:
        raise CommandError(
            f"{path} does not contain a manifest: it was not created by Sixfold, or its metadata was removed"
        )
    try:
        signed = signing.verify(text, _own_keys(data_dir))
    except provenance_manifest.NotAManifest as error:
        raise CommandError(f"The manifest of {path} cannot be read: {error}") from error
    verdict: Verdict = "invalid"
    if signed.intact:
        verdict = "ours" if signed.trusted else "foreign"
    return FileProvenance(data, text, signed.manifest, verdict, signed.signed_by)


def _own_keys(data_dir: Path) -> frozenset[str]:
    """Return the public key of this data folder, or an empty set."""
    try:
        seed = (data_dir / SERVER_KEY).read_bytes()
        return frozenset({signing.Signer(seed).key})
    except (OSError, ValueError):
        return frozenset()
