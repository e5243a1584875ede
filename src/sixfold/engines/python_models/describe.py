"""Command that prints a model file's description: `python -m sixfold.engines.python_models.describe FILE`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from sixfold import process_resources
from sixfold.engines.python_models import files, signature
from sixfold.engines.python_models.files import InvalidModelFile

# The memory for the libraries that a file imports, beyond that of this process.
_MEMORY_BYTES = 4 * 2**30


def main(argv: list[str]) -> int:
    """Write the description as JSON, or `{"fault": …}`; returns the exit status."""
    process_resources.limit_data(_MEMORY_BYTES)
    out = sys.stdout
    sys.stdout = sys.stderr  # so that output of the file does not mix with the description
    try:
        description = describe(Path(argv[0]))
    except InvalidModelFile as error:
        description = {"fault": str(error)}
    out.write(json.dumps(description))
    return 0


def describe(path: Path) -> dict[str, object]:
    """Return the description of a file's model; raises `InvalidModelFile`."""
    function, facts = files.load(path)
    name = facts.name or re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    if not files.NAME.fullmatch(name):
        raise InvalidModelFile(f"{name!r} is not a valid model name: use a to z, digits and -")
    docstring = (function.__doc__ or "").strip()
    return {
        "name": name,
        "title": facts.title or name,
        "description": facts.description
        or docstring.partition("\n\n")[0]
        or f"The function {function.__name__}",
        "hardware": facts.hardware,
        "inputs": signature.inputs(function),
        "output_kind": signature.output_kind(function),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
