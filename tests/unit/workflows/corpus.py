"""Workflows of other projects, if this machine has them; they are never part of the project."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.workflows import object_info
from sixfold.core.workflows.nodes import Registry
from tests.architecture import source

FOLDER = source.ROOT.parent / "shared/data/workflows"
PAIRS = sorted(FOLDER.glob("examples_pairs/*.ui.json"))
TEMPLATES = sorted(FOLDER.glob("templates_*/*.json"))
GRAPHS = sorted([*FOLDER.glob("*_api/*.json"), *FOLDER.glob("examples_pairs/*.api.json")])
here = pytest.mark.skipif(not PAIRS, reason="no corpus of workflows on this machine (shared/data/workflows)")


def load(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@functools.cache
def schemas() -> Registry:
    """The classes of two ComfyUI versions, the newer one's first."""
    old, new = (object_info.read(load(path)) for path in sorted(FOLDER.glob("object_info_comfyui_*.json")))
    return old.joined(new)
