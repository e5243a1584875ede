"""Gradio spaces: web applications imported as models, hosted elsewhere or run on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from sixfold import errors

KIND = "space"
RUNTIME = "webui-runtime"
# The owner of spaces that are imported from a folder.
LOCAL = "local"
WAYS = ("remote", "container", "process")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_FOLDER = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)-[0-9a-f]{16}")
_ID = re.compile(rf"({_PART})/({_PART})")
_MAX_URL = 2_048  # characters; `urlsplit` takes quadratic time for the host


class SpaceId(msgspec.Struct, frozen=True):
    """The owner and name of a space."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def model(self) -> str:
        """The name of the model that is created from the space."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.owner}-{self.name}".lower())


class ImportedSpace(msgspec.Struct, frozen=True):
    """An imported space: a document in the catalog's format with one model, `id.model`."""

    id: SpaceId
    document: Mapping[str, Any]


class GradioSpacePort(Protocol):
    """Reads the inputs and outputs of a hosted space."""

    async def read(self, space: SpaceId, *, hardware: str | None, private: bool) -> ImportedSpace:
        """Return the space as a model.

        `private` sends the operator's token, for spaces that are not public.

        Raises `BadRequest` for an unknown kind of space, and `EngineFailed` if the space does not respond.
        """
        ...


def parse(text: str) -> SpaceId:
    """Parse `owner/name`, or a URL that contains it after `spaces/` or at its end; raises `BadRequest`."""
    reference = text.strip()
    if len(reference) > _MAX_URL:
        raise errors.BadRequest(f"space must be at most {_MAX_URL} characters (got {len(reference)})")
    if re.match(r"https?://", reference, re.I):
        try:
            parts = [part for part in urlsplit(reference).path.split("/") if part]
        except ValueError:
            parts = []
        after = parts[parts.index("spaces") + 1 :][:2] if "spaces" in parts else []
        reference = "/".join(after if len(after) == 2 else parts[-2:])
    match = _ID.fullmatch(reference)
    if match is None or ".." in reference:
        raise errors.BadRequest("space must be owner/name, or the URL of a space")
    return SpaceId(match[1], match[2])


class LocalSpaces(Protocol):
    """Starts spaces on this machine in a sandbox to read their inputs; their runs use ordinary workers."""

    @property
    def containers(self) -> bool:
        """Whether containers can be started."""
        ...

    async def import_space(
        self, space: SpaceId, *, run: str, folder: str, hardware: str | None
    ) -> ImportedSpace:
        """Return a space as a model that runs on this machine.

        `run` is one of `WAYS`, or empty for the best available one.

        `folder` names a folder of the operator, and is empty for a space from the hub. Raises
        `EngineUnavailable` if sandboxes are unavailable, and `BadRequest` if the space does not start or its
        kind is unknown.
        """
        ...


def of_folder(name: str) -> SpaceId:
    """Return the id of the space in an imported folder; raises `BadRequest`."""
    match = _FOLDER.fullmatch(name)
    if match is None:
        raise errors.BadRequest("folder must be the name of a folder that `sixfold space import` created")
    return SpaceId(LOCAL, match[1])
