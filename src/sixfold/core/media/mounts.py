"""Artifact mounts: stored files under the paths by which inputs and workers refer to them.

`{"score.mid": "blob_…"}` mounts the file `/mnt/sixfold/artifacts/score.mid`. A media input with that path has
the content of the file, and the worker finds every mounted file in `Task.files` as `artifacts/score.mid`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def parse(value: Any) -> dict[str, str]:
    """Parse the mounts into the upload id or URL of each file name; raises `InvalidInput`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(cast("dict[object, object]", value)) > _MAX_MOUNTS:
        raise _invalid(f"{FIELD} must be an object of at most {_MAX_MOUNTS} file names")
    targets: dict[str, str] = {}
    for name, target in cast("dict[object, object]", value).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _invalid(f"{FIELD} has an invalid file name: {name!r}")
        if not isinstance(target, str) or not target:
            raise _invalid(f"{FIELD}.{name} must be the id of an upload or a URL")
        targets[name] = target
    return targets


async def sources(
    media: MediaService, tenant: Tenant, model: Model, mounts: Mapping[str, str], inputs: Mapping[str, Any]
) -> dict[str, MediaSource]:
    """Return the mounted files, and the media inputs that refer to mounted files; raises `InvalidInput`."""
    mounted: dict[str, MediaSource] = {}
    for name, target in mounts.items():
        descriptor = Descriptor(name=f"{FIELD}.{name}", type="file")
        mounted[PREFIX + name] = await media.resolve(tenant, descriptor, target)
    for descriptor in model.media_inputs:
        value = inputs.get(descriptor.name)
        if not isinstance(value, str) or not value.startswith(f"{PATH}/"):
            continue
        name = value.removeprefix(f"{PATH}/")
        source = mounted.get(PREFIX + name)
        if source is None:
            sentence = f"{descriptor.name}: file {name} is not in {FIELD}"
            raise errors.InvalidInput([errors.Problem(descriptor.name, sentence, "missing")])
        if descriptor.type == "image":
            await _check_image(media, descriptor, source)
        mounted[descriptor.name] = source
    return mounted


def mounted_inputs(model: Model, mounts: Mapping[str, str], inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of media inputs that refer to a mounted file."""
    # A tuple, because inputs of any type, hashable or not, can be compared with its items.
    paths = tuple(f"{PATH}/{name}" for name in mounts)
    return frozenset(
        media_input.name for media_input in model.media_inputs if inputs.get(media_input.name) in paths
    )


async def _check_image(media: MediaService, descriptor: Descriptor, source: MediaSource) -> None:
    try:
        await media.check_image(source)
    except (errors.BadRequest, errors.TooLarge) as error:
        sentence = f"{descriptor.name}: {error.message}"
        raise errors.InvalidInput([errors.Problem(descriptor.name, sentence, error.code)]) from error


def _invalid(sentence: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem(FIELD, sentence, "dict_type")])
