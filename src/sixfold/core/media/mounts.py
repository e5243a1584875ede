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
_KIND = "dict_type"
_NAME = re.compile(r"(?!\.)[\w. ()+@-]{1,200}")


def parse(value: Any) -> dict[str, str]:
    """Parse the mounts into the upload id or URL of each file name; raises `InvalidInput`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(cast("dict[object, object]", value)) > _MAX_MOUNTS:
        raise errors.InvalidInput.of(
            FIELD, f"{FIELD} must be an object of at most {_MAX_MOUNTS} file names", _KIND
        )
    targets = cast("dict[str, Any]", value)
    problems = [
        errors.Problem(FIELD, f"{FIELD} has an invalid file name: {name!r:.200}", _KIND)
        for name in targets
        if not _NAME.fullmatch(name)
    ]
    problems += [
        errors.Problem(FIELD, f"{FIELD}.{name} must be the id of an upload or a URL", _KIND)
        for name, target in targets.items()
        if _NAME.fullmatch(name) and not (target and isinstance(target, str))
    ]
    if problems:
        raise errors.InvalidInput(problems)
    return targets


async def sources(
    media: MediaService, tenant: Tenant, model: Model, mounts: Mapping[str, str], inputs: Mapping[str, Any]
) -> dict[str, MediaSource]:
    """Return the mounted files, and the media inputs that refer to mounted files.

    Raises `InvalidInput` with all problems. URLs are fetched only if all uploads exist.
    """
    mounted: dict[str, MediaSource] = {}
    problems: list[errors.Problem] = []
    for name in sorted(mounts, key=lambda name: media.is_remote(mounts[name])):
        descriptor = Descriptor(name=f"{FIELD}.{name}", type="file")
        try:
            if problems and media.is_remote(mounts[name]):
                await media.check_unfetched(tenant, descriptor, mounts[name])
            else:
                mounted[PREFIX + name] = await media.resolve(tenant, descriptor, mounts[name])
        except errors.InvalidInput as error:
            problems += error.problems
    for descriptor in model.media_inputs:
        value = inputs.get(descriptor.name)
        if not isinstance(value, str) or not value.startswith(f"{PATH}/"):
            continue
        name = value.removeprefix(f"{PATH}/")
        if (source := mounted.get(PREFIX + name)) is not None:
            problems += await _image_problems(media, descriptor, source)
            mounted[descriptor.name] = source
        elif name not in mounts:
            sentence = f"{descriptor.name}: file {name} is not in {FIELD}"
            problems.append(errors.Problem(descriptor.name, sentence, "missing"))
    if problems:
        raise errors.InvalidInput(problems)
    return mounted


def mounted_inputs(model: Model, mounts: Mapping[str, str], inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of media inputs that refer to a mounted file."""
    # A tuple, because inputs of any type, hashable or not, can be compared with its items.
    paths = tuple(f"{PATH}/{name}" for name in mounts)
    return frozenset(
        media_input.name for media_input in model.media_inputs if inputs.get(media_input.name) in paths
    )


async def _image_problems(
    media: MediaService, descriptor: Descriptor, source: MediaSource
) -> tuple[errors.Problem, ...]:
    try:
        if descriptor.type == "image":
            await media.check_image(source)
    except (errors.BadRequest, errors.TooLarge) as error:
        return (errors.Problem(descriptor.name, f"{descriptor.name}: {error.message}", error.code),)
    return ()
