"""Write a bill of materials, checksums and their signature for the archives of `make packages`.

The bill of materials is CycloneDX 1.6 and lists the distributions that the lock installs with the extra
`embedded`. The files are undated, which makes two builds of one commit equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import sixfold
from tools import licenses, lock

SHIPPED = {"constraints.txt": "required", "constraints-embedded.txt": "optional"}
CHECKSUMS = "SHA256SUMS"
NAMESPACE = "sixfold-release"
KEY_VARIABLE = "RELEASE_KEY"


def bill_of_materials() -> dict[str, Any]:
    """Return the CycloneDX document of the server and the distributions that the lock installs with it."""
    text = licenses.documented()
    components = [
        component(Requirement(pin), scope, text)
        for layer, scope in SHIPPED.items()
        for pin in lock.pins(layer)
    ]
    own = {"type": "application", "name": "sixfold", "version": sixfold.__version__}
    own |= {"bom-ref": "sixfold", "licenses": [{"license": {"id": "Apache-2.0"}}]}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": sorted(components, key=lambda row: row["purl"]),
        "dependencies": [{"ref": "sixfold", "dependsOn": sorted(row["bom-ref"] for row in components)}],
    }


def component(pin: Requirement, scope: str, license_texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the component of a pinned distribution, with its license from docs/reference/licenses.md."""
    version = str(pin.specifier).removeprefix("==")
    purl = f"pkg:pypi/{pin.name}@{version}"
    row: dict[str, Any] = {"type": "library", "name": pin.name, "version": version, "scope": scope}
    fields = (
        {"licenses": [{"license": {"name": license_texts[pin.name]}}]} if pin.name in license_texts else {}
    )
    return {**row, "purl": purl, "bom-ref": purl, **fields}


def write_sums(folder: Path) -> list[Path]:
    """Write the bill of materials and the checksums of all files in `folder`; return both files."""
    bill = folder / f"sixfold-{sixfold.__version__}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(), indent=2, ensure_ascii=False) + "\n")
    files = sorted(path for path in folder.iterdir() if path.name.startswith("sixfold-"))
    sums = folder / CHECKSUMS
    sums.write_text(
        "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    )
    return [bill, sums]


def write(folder: Path, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Write the bill of materials, the checksums, and with a key their signature; return the files."""
    bill, sums = write_sums(folder)
    key = environ.get(KEY_VARIABLE, "")
    if not key:
        print(f"{CHECKSUMS} is not signed: set {KEY_VARIABLE} to the file of an SSH key to sign it")
        return [bill, sums]
    signature = folder / f"{CHECKSUMS}.sig"
    signature.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, str(sums)]
    subprocess.run(command, check=True, capture_output=True)
    return [bill, sums, signature]
