"""Outputs of predictions with several outputs: the first has no name, the others do.

`Artifact.info` of a file contains the name of its output. `Result.others` has the other outputs by name, with
null for those that are files. `Result.data` is not used here, because an engine may copy it from an untrusted
service.
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
    """Return the outputs after the first by name: a list of files, or a value."""
    files: dict[str, list[OutputFile]] = {name: [] for name, value in output.others.items() if value is None}
    for file in output.files:
        name = file.info.get(OUTPUT_NAME)
        if isinstance(name, str) and name in files:
            files[name].append(file)
    return output.others | {name: found for name, found in files.items() if found}
