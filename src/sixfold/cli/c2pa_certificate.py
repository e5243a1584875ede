"""`c2pa create`: create a certificate and key for C2PA manifests."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sixfold.cli import database_access
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.provenance import certificates
from sixfold.core.provenance.certificates import InvalidCertificate

CERTIFICATES, KEY = "c2pa-certificates.pem", "c2pa-key.pem"


def create(arguments: argparse.Namespace) -> None:
    """Run `c2pa create`: write the certificates and the key to the data folder, without replacing any."""
    folder = database_access.settings_of(arguments).data_dir
    chain_path, key_path = folder / CERTIFICATES, folder / KEY
    for path in (chain_path, key_path):
        if path.exists():
            raise CommandError(
                f"{path} already exists: move it to another folder before you create a new one"
            )
    try:
        chain, key = certificates.create(arguments.name, arguments.days)
    except InvalidCertificate as error:
        raise CommandError(f"The certificate cannot be created: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    _write(key_path, key, 0o600)
    _write(chain_path, chain, 0o644)
    if arguments.json:
        put_json({"c2pa_certificate": str(chain_path), "c2pa_key": str(key_path), "days": arguments.days})
        return
    paint = TerminalStyle()
    paint.line("  Created. To sign outputs, add these lines to sixfold.toml and restart the server:")
    paint.line(f'    c2pa_certificate = "{chain_path}"')
    paint.line(f'    c2pa_key = "{key_path}"')


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
