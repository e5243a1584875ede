"""Names that a request uses but the catalog does not have: of models, and of inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from sixfold import errors, near_names
from sixfold.core.catalog.inputs import Descriptor

# Number of ignored inputs in the record of a run, and of characters of their names.
_MAX_INPUTS, _MAX_CHARS = 20, 100


def unknown_model(name: str, names: Collection[str] = ()) -> errors.NotFound:
    """Return the error for a model that is neither in the catalog nor a model of the account.

    The error suggests similar models.
    """
    near = similar_models(name, names)
    where = f"did you mean {near}?" if near else "`GET /api/containers/templates` lists the models"
    return errors.NotFound(f"Model {name[:100]} not found; {where}")


def similar_models(name: str, names: Collection[str]) -> str:
    """Return the similar names with the same part before the first slash, as `a, b or c`."""
    prefix, slash, _ = name.partition("/")
    start = prefix + slash if slash else ""
    candidates = [each for each in names if each.startswith(start) and ("/" in each) == bool(slash)]
    return near_names.joined(near_names.similar(name, candidates))


def ignored_inputs(descriptors: Sequence[Descriptor], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs of a request that the model does not have, each with a similar input or "".

    Only the first 20 are returned, with the first 100 characters of their names.
    """
    names = [descriptor.name for descriptor in descriptors]
    known = {*names, *(alias for descriptor in descriptors for alias in descriptor.aliases)}
    unknown = islice((name[:_MAX_CHARS] for name in values if name not in known), _MAX_INPUTS)
    return {name: next(iter(near_names.similar(name, names)), "") for name in unknown}
