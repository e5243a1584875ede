"""Loading of a model file and its function."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sixfold.model_api import MARK, ModelFacts

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class InvalidModelFile(Exception):
    """Raised for a file without a usable model; the message is a clause with the reason."""


def load(path: Path) -> tuple[Callable[..., Any], ModelFacts]:
    """Run a file and return its model function and the decorator's arguments; raises `InvalidModelFile`."""
    spec = importlib.util.spec_from_file_location(f"sixfold_own_{path.stem.replace('-', '_')}", path)
    if spec is None or spec.loader is None:
        raise InvalidModelFile("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # type hints of the file are resolved here
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise InvalidModelFile(f"{where}{error.msg}") from error
    except (Exception, SystemExit) as error:
        raise InvalidModelFile(f"{line_prefix(error, path)}{type(error).__name__}: {error}") from error
    functions = [
        each
        for each in vars(module).values()
        if callable(each)
        and isinstance(getattr(each, MARK, None), ModelFacts)
        and getattr(each, "__module__", "") == spec.name
    ]
    if len(functions) != 1:
        raise InvalidModelFile(
            "it has no function decorated with @sixfold.model"
            if not functions
            else "it has more than one model"
        )
    return functions[0], getattr(functions[0], MARK)


def line_prefix(error: BaseException, path: Path) -> str:
    """Return `line 3: ` for the file's last line in an error's traceback, or an empty string."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"line {lines[-1]}: " if lines else ""
