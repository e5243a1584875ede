"""Build hook that adds the guides to the wheel; the server shows them below `/docs`."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("start", "howto", "reference", "architecture", "pictures")
# The groups of the guides are in the index.
NAMES = (*FOLDERS, "index.md")


class Guides(BuildHookInterface[Any]):
    """Adds the folders and the index of docs/; an editable installation reads them where they are written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folders."""
        if version != "editable":
            build_data["force_include"] |= {f"docs/{name}": f"sixfold/guides/{name}" for name in NAMES}
