"""The C2PA manifest of an output file, derived from its Sixfold manifest.

It states how the file was created, by which model and software, and the digests of the input files. Inputs
such as prompts are omitted: only the file's Sixfold manifest contains them.
"""

from __future__ import annotations

from typing import Any, Final

from sixfold.core.provenance.manifest import Manifest

# The media types that are signed: C2PA's library supports them, the Sixfold manifest stays readable next to
# the C2PA manifest, and `c2pa_removal` restores the exact bytes without it.
MEDIA_TYPES: Final = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/webp",
        "image/gif",
        "video/mp4",
        "video/quicktime",
        "audio/mp4",
        "audio/wav",
    }
)
_SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/"
_MAX_INGREDIENTS = 16


def source_type(engine_kind: str | None, *, has_parents: bool) -> str:
    """Return the IPTC digital source type of an output; an unknown engine counts as a trained model.

    Embedded engines do not use weights. A graph may combine nodes of any kind.
    """
    if engine_kind == "graph":
        name = "compositeSynthetic"
    elif engine_kind == "embedded":
        name = "algorithmicallyEnhanced" if has_parents else "algorithmicMedia"
    else:
        name = "compositeWithTrainedAlgorithmicMedia" if has_parents else "trainedAlgorithmicMedia"
    return _SOURCE_TYPE + name


def definition(manifest: Manifest, engine_kind: str | None) -> dict[str, Any]:
    """Return the definition of the C2PA manifest, in the format of the C2PA library."""
    name, _, version = manifest.software.partition(" ")
    created = {
        "action": "c2pa.created",
        "digitalSourceType": source_type(engine_kind, has_parents=bool(manifest.parents)),
        "softwareAgent": {
            "name": f"{manifest.model} ({manifest.engine})",
            "version": manifest.engine_version,
        },
    }
    return {
        "claim_generator_info": [{"name": name.capitalize(), "version": version}],
        "title": f"{manifest.prediction_id}, output {manifest.index}",
        "ingredients": [
            {"title": parent, "relationship": "inputTo"} for parent in manifest.parents[:_MAX_INGREDIENTS]
        ],
        "assertions": [{"label": "c2pa.actions.v2", "created": True, "data": {"actions": [created]}}],
    }
