"""Spaces: programs with a web page of their own, imported as models; served elsewhere, or run here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from sixfold import errors

KIND = "space"
RUNTIME = "webui-runtime"
LOCAL = "local"  # the owner of spaces that came as a folder
WAYS = ("remote", "container", "process")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_FOLDER = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)-[0-9a-f]{16}")
_ID = re.compile(rf"({_PART})/({_PART})")
_MAX_URL = 2_048  # characters; `urlsplit` normalizes a host in quadratic time


@dataclass(frozen=True, slots=True)
class SpaceId:
    """A space by its owner and name."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def model(self) -> str:
        """The name of the model that it becomes."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.owner}-{self.name}".lower())


@dataclass(frozen=True, slots=True)
class ImportedSpace:
    """What a space became: a document in the catalogue's shape, its one model under `id.model`."""

    id: SpaceId
    document: Mapping[str, Any]


class GradioSpacePort(Protocol):
    """Reads what a served space takes and gives."""

    async def read(self, space: SpaceId, *, hardware: str | None, private: bool) -> ImportedSpace:
        """The space as a model. `private`: with the operator's token, for spaces that are not public.

        Raises `BadRequest` for what is no space of a known kind, `EngineFailed` where it does not answer.
        """
        ...


def parse(text: str) -> SpaceId:
    """`owner/name`, or a URL that has it behind `spaces/`, or at its end; raises `BadRequest`."""
    found = text.strip()
    if len(found) > _MAX_URL:
        raise errors.BadRequest(f"space has {len(found)} characters; {_MAX_URL} are the most")
    if re.match(r"https?://", found, re.I):
        try:
            parts = [part for part in urlsplit(found).path.split("/") if part]
        except ValueError:
            parts = []
        behind = parts[parts.index("spaces") + 1 :][:2] if "spaces" in parts else []
        found = "/".join(behind if len(behind) == 2 else parts[-2:])
    named = _ID.fullmatch(found)
    if named is None or ".." in found:
        raise errors.BadRequest("space must be owner/name, or the URL of a space")
    return SpaceId(named[1], named[2])


class LocalSpaces(Protocol):
    """Runs spaces on this machine, shut in, to learn what they take; their runs are workers like others."""

    @property
    def containers(self) -> bool:
        """Whether a container can be started."""
        ...

    async def bring(self, space: SpaceId, *, run: str, folder: str, hardware: str | None) -> ImportedSpace:
        """A space as a model that runs here; `run` is one of `WAYS`, or empty for what can be done.

        `folder` names one of the operator's, empty for a space of the hub. Raises `EngineUnavailable` where
        nothing can shut it in, `BadRequest` for what does not start or is of no known kind.
        """
        ...


def of_folder(name: str) -> SpaceId:
    """The space that a kept folder is, by its name and content; raises `BadRequest`."""
    named = _FOLDER.fullmatch(name)
    if named is None:
        raise errors.BadRequest("folder must be the name of one that `sixfold space import` kept")
    return SpaceId(LOCAL, named[1])
