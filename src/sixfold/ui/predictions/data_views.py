"""The drawings of data on the pages of results.

Each page of a result shows the same drawing: those of a run, of two runs that are compared, and of a share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from sixfold.ui.predictions import forecast_chart, transcript, vector_strips
from sixfold.ui.predictions.transcript import TranscriptView


class RecordingView(msgspec.Struct, frozen=True):
    """The audio or video file that a transcript was made from."""

    url: str
    kind: str


class DataView(msgspec.Struct, frozen=True):
    """A drawing, and the name of its template in `templates/predictions/views`."""

    kind: str
    drawing: Any

    @property
    def text(self) -> str:
        """The text that the drawing takes from the data; forecasts and vectors have none."""
        return self.drawing.text if isinstance(self.drawing, TranscriptView) else ""


TRANSCRIPT = "transcript"
_RECORDINGS = ("audio", "video")
# Each function returns None for data that it does not draw.
_DRAW: Final[Mapping[str, Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any]]] = {
    "forecast": forecast_chart.chart,
    "vectors": vector_strips.draw,
    TRANSCRIPT: transcript.draw,
}


def draw(model: str, inputs: Mapping[str, Any], data: Mapping[str, Any]) -> DataView | None:
    """Return the drawing of a model's data, or None; `inputs` are those that the page may show."""
    drawings = ((kind, function(model, inputs, data)) for kind, function in _DRAW.items())
    return next((DataView(kind, drawing) for kind, drawing in drawings if drawing is not None), None)


def recording(files: Iterable[tuple[str, str]]) -> RecordingView | None:
    """Return the first audio or video file of pairs of a URL and a content type."""
    kinds = ((url, content_type.partition("/")[0]) for url, content_type in files)
    return next((RecordingView(url, kind) for url, kind in kinds if kind in _RECORDINGS), None)
