"""Several outputs of one prediction: the first has no name, the others have.

A file of another output has its name in `Artifact.info`. `Result.data` holds an object of the others by
their names, with null where there are files.
"""

from __future__ import annotations

from typing import Any, Final

from sixfold.core.work.records import Output

OUTPUT_NAME: Final = "output"
OTHER_OUTPUTS: Final = "_outputs"


def first(output: Output) -> Output:
    """Return the first of several outputs, or the only one."""
    if OTHER_OUTPUTS not in output.data:
        return output
    files = tuple(file for file in output.files if OUTPUT_NAME not in file.info)
    return Output(files, {name: value for name, value in output.data.items() if name != OTHER_OUTPUTS})


def others(output: Output) -> dict[str, Any]:
    """Return the outputs after the first by their names: a list of files, or a value."""
    found: dict[str, Any] = dict(output.data.get(OTHER_OUTPUTS, {}))
    for file in output.files:
        if (name := file.info.get(OUTPUT_NAME)) in found:
            found[name] = [*(found[name] or ()), file]
    return found
