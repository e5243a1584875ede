"""Lineage of outputs: their sources, the outputs derived from them, and inputs that reproduce them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.core.database import Query, Row, Transaction, Value, many, one, to_struct
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.media.media import MEDIA_PATH, MediaSource
from sixfold.core.media.outputs import Output, decode_output
from sixfold.core.predictions.models import Prediction
from sixfold.core.provenance import redaction
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.provenance.signing import Signer

_LIMIT = 24
# The later runs of which the tasks are searched, and the characters of an output that is read: all runs of an
# account, with vectors of 17 MiB each, would take minutes and gigabytes.
_READ_RUNS, _MAX_OUTPUT_CHARS = 2_000, 64 * 1024
_DRAWN = ("seed", "variant")


class LineageSource(msgspec.Struct, frozen=True):
    """A media input, with its file name if it still exists, and the prediction that produced it, if any."""

    input: str
    name: str | None
    content_type: str
    prediction_id: str | None
    model: str | None


class RelatedRun(msgspec.Struct, frozen=True):
    """A related prediction; without its output if that is large or withheld."""

    id: str
    model: str
    state: str
    created_at: int
    output_kind: str
    output: Output | None

    @classmethod
    def of(cls, row: Row) -> RelatedRun:
        return to_struct(cls, row, output=decode_output(row["output"]) if row["output"] else None)


class Lineage(msgspec.Struct, frozen=True):
    """The related predictions of the same account; each tuple is in the order of acceptance.

    `same` contains those with the same fingerprint, and whether each produced the same bytes.
    """

    sources: tuple[LineageSource, ...]
    parts: tuple[RelatedRun, ...]
    derived: tuple[RelatedRun, ...]
    same: tuple[tuple[RelatedRun, bool], ...]

    def __bool__(self) -> bool:
        return bool(self.sources or self.parts or self.derived or self.same)


def get(prediction: Prediction) -> Transaction[Lineage]:
    """Return the lineage; the tasks of many runs are searched, so the transaction is for a thread."""
    limits: dict[str, Value] = {"limit": _LIMIT, "most_chars": _MAX_OUTPUT_CHARS}
    sources = yield from input_files(prediction)
    blobs = _blobs(prediction.output)
    later: dict[str, Value] = {
        "account_id": prediction.account_id,
        "after": prediction.id,
        "read": _READ_RUNS,
    }
    children: dict[str, RelatedRun] = {}
    for blob in blobs[:_LIMIT]:
        rows = yield Query("lineage_made", {**later, **limits, "read": _READ_RUNS, "blob": blob})
        children |= {row["id"]: RelatedRun.of(row) for row in rows}
    parts = yield from many("lineage_parts", parent_id=prediction.id, **limits)
    same = yield from many("lineage_same", account_id=prediction.account_id, id=prediction.id, **limits)
    return Lineage(
        sources,
        tuple(map(RelatedRun.of, parts)),
        tuple(children[key] for key in sorted(children))[:_LIMIT],
        tuple(_compared(row, blobs) for row in same),
    )


def _compared(row: Row, blobs: tuple[str, ...]) -> tuple[RelatedRun, bool]:
    """Return a run with the same inputs, and whether it produced the same bytes."""
    other = RelatedRun.of(row)
    return other, bool(row["is_same"]) or bool(blobs and blobs == _blobs(other.output))


def input_files(prediction: Prediction) -> Transaction[tuple[LineageSource, ...]]:
    """Return the media inputs of a prediction in the order of their names."""
    sources: list[LineageSource] = []
    for name, blob in sorted(prediction.task.files.items()):
        row = yield from _source_row(prediction, blob)
        sources.append(_source(name, row))
    return tuple(sources)


def manifest(prediction: Prediction, index: int, engine_version: str, quality: str) -> Manifest:
    """Return the provenance manifest of the output file number `index`."""
    task = prediction.task
    return Manifest(
        model=prediction.model,
        inputs=redaction.without_file_paths(prediction.inputs),
        engine=prediction.engine,
        engine_version=engine_version,
        quality=quality,
        prediction_id=prediction.origin_id,
        index=index,
        seed=task.inputs.get("seed"),
        parents=tuple(f"blake3:{digest_of(key)}" for key in task.files.values()),
    )


def sign_manifests(
    signer: Signer, prediction: Prediction, count: int, engine_version: str, quality: str
) -> tuple[str, ...]:
    """Sign the manifest of each file of a prediction; return the manifests in the files' order."""
    manifests = (manifest(prediction, index, engine_version, quality) for index in range(count))
    return tuple(signer.sign(each) for each in manifests)


def reusable_inputs(prediction: Prediction, origin: str) -> Transaction[dict[str, Any]]:
    """Return the inputs of a prediction for another run.

    An input that was stored only as a digest becomes the file's URL below `origin`; if the file no longer
    exists, the input is omitted.
    """
    inputs = dict(prediction.inputs)
    for name, value in prediction.inputs.items():
        if not isinstance(value, Mapping):
            continue
        row = yield from _source_row(prediction, prediction.task.files.get(name, ""))
        inputs[name] = None if row is None else f"{origin}{MEDIA_PATH}{row['name']}"
    return {name: value for name, value in inputs.items() if value is not None}


def drawn_values(prediction: Prediction) -> dict[str, Any]:
    """Return the randomly chosen values, such as the seed, that are needed to reproduce a result."""
    extras = {name: prediction.task.inputs[name] for name in _DRAWN if name in prediction.task.inputs}
    return {**extras, "randomize_seed": False} if "randomize_seed" in prediction.inputs else extras


def stored_inputs(prediction: Prediction) -> Transaction[dict[str, MediaSource]]:
    """Return the media inputs whose content is still stored, by name."""
    inputs: dict[str, MediaSource] = {}
    for name in prediction.inputs.keys() & prediction.task.files.keys():
        blob = prediction.task.files[name]
        row = yield from _source_row(prediction, blob)
        if row is not None:
            inputs[name] = MediaSource(blob, row["content_type"], row["size"])
    return inputs


def _source_row(prediction: Prediction, blob: str) -> Transaction[Row | None]:
    return (
        yield from one("lineage_source", account_id=prediction.account_id, blob=blob, before=prediction.id)
    )


def _source(name: str, row: Row | None) -> LineageSource:
    if row is None:
        return LineageSource(name, None, "", None, None)
    return LineageSource(name, row["name"], row["content_type"], row["id"], row["model"])


def _blobs(output: Output | None) -> tuple[str, ...]:
    return () if output is None else tuple(file.blob for file in output.files)
