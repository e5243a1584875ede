"""`python -m sixfold.engines.python_models.describe FILE`: what a file's model is, as JSON; runs the file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from sixfold.engines.python_models import files, signature
from sixfold.engines.python_models.files import InvalidModelFile


def main(argv: list[str]) -> int:
    """Write the description, or `{"fault": …}`."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what the file prints is no part of the description
    try:
        found = described(Path(argv[0]))
    except InvalidModelFile as wrong:
        found = {"fault": str(wrong)}
    out.write(json.dumps(found))
    return 0


def described(path: Path) -> dict[str, object]:
    """What the file's model is; raises `InvalidModelFile`."""
    function, facts = files.load(path)
    name = facts.name or re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    if not files.NAME.fullmatch(name):
        raise InvalidModelFile(f"{name!r} is no name for a model: use a to z, digits and -")
    said = (function.__doc__ or "").strip()
    return {
        "name": name,
        "title": facts.title or name,
        "description": facts.description or said.partition("\n\n")[0] or f"The function {function.__name__}",
        "hardware": facts.hardware,
        "inputs": signature.inputs(function),
        "output_kind": signature.output_kind(function),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
