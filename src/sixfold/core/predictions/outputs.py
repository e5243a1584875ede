"""Several outputs of one prediction: the first has no name, the others have.

A file of another output has its name in `Artifact.info`. `Result.others` has the others by their names,
with null where there are files; `Result.data`, which an engine may take from a stranger, has no part in it.
"""

from __future__ import annotations

from typing import Any, Final

from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Output

OUTPUT_NAME: Final = "output"


def first(output: Output) -> Output:
    """Return the first of several outputs, or the only one."""
    if not output.others:
        return output
    return Output(tuple(file for file in output.files if OUTPUT_NAME not in file.info), output.data)


def others(output: Output) -> dict[str, Any]:
    """Return the outputs after the first by their names: a list of files, or a value."""
    files: dict[str, list[OutputFile]] = {name: [] for name, value in output.others.items() if value is None}
    for file in output.files:
        name = file.info.get(OUTPUT_NAME)
        if isinstance(name, str) and name in files:
            files[name].append(file)
    return output.others | {name: found for name, found in files.items() if found}
