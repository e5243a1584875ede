"""Artifact mounts: stored files under the paths by which inputs and workers refer to them.

`{"score.mid": "blob_…"}` mounts the file `/mnt/sixfold/artifacts/score.mid`. A media input with that path
takes its content, and the worker finds every mounted file in `Task.files` as `artifacts/score.mid`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Model
from sixfold.core.media.media import MediaService, MediaSource

FIELD = "_artifacts_mounts"
PATH = "/mnt/sixfold/artifacts"
PREFIX = "artifacts/"
_MAX_MOUNTS = 32
_NAME = re.compile(r"(?!\.)[\w. ()+@-]{1,200}")


def parse(given: Any) -> dict[str, str]:
    """Return the upload id or URL of each file name; raises `InvalidInput`."""
    if given is None:
        return {}
    if not isinstance(given, dict) or len(cast("dict[object, object]", given)) > _MAX_MOUNTS:
        raise _refused(f"{FIELD} must be an object of at most {_MAX_MOUNTS} file names")
    found: dict[str, str] = {}
    for name, target in cast("dict[object, object]", given).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _refused(f"{FIELD} has a name that no file can have: {name!r}")
        if not isinstance(target, str) or not target:
            raise _refused(f"{FIELD} must give {name} the id of an upload, or a URL")
        found[name] = target
    return found


async def sources(
    media: MediaService, tenant: Tenant, model: Model, mounts: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, MediaSource]:
    """Return the mounted files, and the media inputs that refer to one; raises `InvalidInput`."""
    found: dict[str, MediaSource] = {}
    for name, target in mounts.items():
        descriptor = Descriptor(name=f"{FIELD}.{name}", type="file")
        found[PREFIX + name] = await media.resolve(tenant, descriptor, target)
    for descriptor in model.media_inputs:
        value = given.get(descriptor.name)
        if not isinstance(value, str) or not value.startswith(f"{PATH}/"):
            continue
        name = value.removeprefix(f"{PATH}/")
        source = found.get(PREFIX + name)
        if source is None:
            sentence = f"{descriptor.name}: {FIELD} mounts no file {name}"
            raise errors.InvalidInput([errors.Problem(descriptor.name, sentence, "missing")])
        if descriptor.type == "image":
            await _check_image(media, descriptor, source)
        found[descriptor.name] = source
    return found


def named(model: Model, mounts: Mapping[str, str], given: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of media inputs that refer to a mounted file."""
    # A tuple, because inputs of any type can be compared with its items, hashable or not.
    paths = tuple(f"{PATH}/{name}" for name in mounts)
    return frozenset(each.name for each in model.media_inputs if given.get(each.name) in paths)


def local(files: Mapping[str, Path], text: str) -> Path | None:
    """Return the file of a task that an input's text refers to as mounted, or None; for engines."""
    return files.get(PREFIX + text.removeprefix(f"{PATH}/")) if text.startswith(f"{PATH}/") else None


async def _check_image(media: MediaService, descriptor: Descriptor, source: MediaSource) -> None:
    try:
        await media.check_image(source)
    except (errors.BadRequest, errors.TooLarge) as error:
        sentence = f"{descriptor.name}: {error.message}"
        raise errors.InvalidInput([errors.Problem(descriptor.name, sentence, error.code)]) from error


def _refused(sentence: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem(FIELD, sentence, "dict_type")])
