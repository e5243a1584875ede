"""The inputs of a run that its share and its gallery post show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sixfold.core.catalog.inputs import MEDIA_TYPES
from sixfold.core.catalog.models import Model
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.provenance import redaction

_FILE_ADDRESSES = (MEDIA_PATH, "/uploads/", "blob_", "data:")


def text_inputs(inputs: Mapping[str, Any], model: Model | None) -> dict[str, Any]:
    """Return the inputs of a run except files, without secrets in URLs; empty for an unknown model."""
    types = {} if model is None else {each.name: each.type for each in model.inputs}
    plain = {name: value for name, value in inputs.items() if types.get(name, "file") not in MEDIA_TYPES}
    clean_inputs = redaction.clean(plain)
    return {
        name: clean_inputs[name]
        for name in plain
        if name in clean_inputs
        and not redaction.replaced({name: clean_inputs[name]})
        and not _has_file(clean_inputs[name])
    }


def _has_file(value: object) -> bool:
    """Return whether a value contains the address of a file; the texts of a list may have 32 MB."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            if any(address in each for address in _FILE_ADDRESSES):
                return True
        elif isinstance(each, Mapping):
            items = cast("Mapping[str, object]", each)
            stack += (*items, *items.values())
        elif isinstance(each, list):
            stack += cast("list[object]", each)
    return False
