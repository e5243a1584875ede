"""The engine of a Python model, which calls the model's function with the inputs as arguments."""

from __future__ import annotations

import io
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.core.provenance.formats import media_types
from sixfold.engines.python_models import files, signature
from sixfold.engines.python_models.files import InvalidModelFile


class FunctionEngine:
    """Runs the function of the file at `path`; `version` identifies the file's content."""

    name = "own"

    def __init__(self, *, path: str, version: str) -> None:
        self.version = version
        self._path = Path(path)
        try:
            self._function, _ = files.load(Path(path))
        except InvalidModelFile as error:
            raise EngineError(f"The model's file cannot be used: {error}.") from error
        self._kinds: Mapping[str, Any] = signature.kinds(self._function)
        self._progress = signature.progress_argument(self._function)

    def run(self, task: Task, context: Context) -> Result:
        """Call the function; raises `EngineError` with the message of its error for the owner of the file."""
        arguments = {name: value for name, value in task.inputs.items() if name in self._kinds}
        arguments |= {
            name: _open(path, self._kinds[name]) for name, path in task.files.items() if name in self._kinds
        }
        if self._progress is not None:
            arguments[self._progress] = context.progress
        try:
            value = self._function(**arguments)
        except Exception as error:
            context.log(f"{files.line_prefix(error, self._path)}{type(error).__name__}")
            raise EngineError(f"{type(error).__name__}: {error}"[:2000]) from error
        return _result(value)


def _open(path: Path, kind: Any) -> Any:
    if kind is bytes:
        return path.read_bytes()
    if kind is not Image.Image:
        return path
    image = Image.open(path)
    image.load()
    return image


def _result(value: Any) -> Result:
    if isinstance(value, Path | bytes | Image.Image):
        return Result((_artifact(value),))
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(v, Path | bytes | Image.Image) for v in value)
    ):
        return Result(tuple(_artifact(each) for each in value))
    return Result(data=value if isinstance(value, dict) and value else {"value": value})


def _artifact(value: Path | bytes | Image.Image) -> Artifact:
    if isinstance(value, Image.Image):
        out = io.BytesIO()
        value.save(out, "PNG")
        return Artifact("image/png", out.getvalue(), {"width": value.width, "height": value.height})
    if isinstance(value, bytes):
        return Artifact(kind.media_type if (kind := media_types.find(value)) else media_types.UNKNOWN, value)
    if not value.is_file():
        raise EngineError(f"The model returned the path of a missing file: {value.name}.")
    return Artifact(mimetypes.guess_type(value.name)[0] or media_types.UNKNOWN, path=value)
