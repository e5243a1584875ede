"""The result of a prediction as an HTML fragment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold.core import humanize
from sixfold.core.accounts import accounts
from sixfold.core.catalog.models import Catalog
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import encode_json
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.media.outputs import OUTPUT_NAME, Output
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import lineage
from sixfold.core.predictions.history import recent_files, titles
from sixfold.core.predictions.history.titles import title_of
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.catalog import next_models
from sixfold.ui.catalog.next_models import NextModels
from sixfold.ui.predictions import data_views
from sixfold.ui.predictions.data_views import DataView, RecordingView
from sixfold.ui.templating import PageTemplates, model_title
from sixfold.web.responses import ignored_inputs_field
from sixfold.web.services import WebServices

# Limit on text and JSON shown on the page; the API returns all of it.
_MAX_CHARS = 20_000
_MAX_EXTENSION = 5
_MAX_WARNING = 300
_NOT_WORDS, _MAX_STEM = re.compile(r"[\W_]+"), 60
# Names of inputs that contain the image before an edit.
_BEFORE = ("image", "image_url", "input_image", "source_image_url")
# The confidence below which an engine's log is shown as a warning.
_SURE = 0.85
_KINDS = (("image/", "image"), ("video/", "video"), ("audio/", "audio"), ("model/gltf-binary", "model3d"))


class OutputFileView(msgspec.Struct, frozen=True):
    """An output file; `kind` selects how it is shown: image, video, audio, model3d or file."""

    url: str
    file: OutputFile
    kind: str

    @property
    def label(self) -> str:
        """A description: name, format, dimensions or duration, and size."""
        name = str(self.file.info.get(OUTPUT_NAME) or self.file.info.get("name", "")).replace("_", " ")
        extension = self.url.rpartition("/")[2].rpartition(".")[2]
        is_short = self.url.endswith(f".{extension}") and len(extension) <= _MAX_EXTENSION
        file_format = extension.upper() if is_short else self.file.content_type.partition(";")[0]
        parts = [name, file_format, *_dimensions(self.file.info), humanize.size(self.file.size)]
        return ", ".join(part for part in parts if part)


class OutputView:
    """Renders the result of a prediction: its state, receipt, files and data."""

    def __init__(self, pages: PageTemplates, services: WebServices, next_models: NextModels) -> None:
        self._pages = pages
        self._services = services
        self._next_models = next_models
        self._media_url = f"{services.settings.base_url}{MEDIA_PATH}"

    async def values(self, prediction: Prediction) -> dict[str, Any]:
        """Return the template variables of a result."""
        output, catalog = prediction.output, self._services.catalog
        files = () if output is None else output.files
        data = {} if output is None else output.first.data
        others = {} if output is None else output.named
        views = [OutputFileView(f"{MEDIA_PATH}{file.name}", file, file_kind(file)) for file in files]
        succeeded = prediction.state is PredictionState.SUCCEEDED
        # The chart of a series of 20,000 dates takes a tenth of a second.
        view = await PARSER.run_large(
            prediction.size, data_views.draw, prediction.model, prediction.task.inputs, data
        )
        file_name = await self._file_name(prediction)
        text, shown = "" if views else next_models.text_of(data), data_text(data)
        return {
            "prediction": _without_data(prediction),
            "files": views,
            "data": shown,
            "others": {
                name: data_text({"value": value}) for name, value in others.items() if not are_files(value)
            },
            "succeeded": succeeded,
            # Limited like the text that the page shows.
            "text": text[:_MAX_CHARS],
            "is_cut": len(text or shown) > _MAX_CHARS,
            "view": view,
            "recording": await self._recording(prediction, view),
            "next_models": self._next_models.for_kind(_input_kind(views, data), prediction.model)
            if succeeded
            else (),
            # Internal models do not have a form, as only the server runs them.
            "has_form": prediction.model not in catalog or not catalog[prediction.model].internal,
            "has_seed": "seed" in prediction.task.inputs,
            "title": file_name or title(self._services.catalog, prediction),
            "stem": file_stem(prediction, file_name.rpartition(".")[0]),
            "before": self._before(prediction),
            "warning": _warning(prediction, data, view),
            "unlock": self._unlock(prediction) if prediction.words.ignored else "",
            "ignored_inputs": ignored_inputs_field(prediction.model, prediction.ignored_inputs).get(
                "ignored_inputs", ()
            ),
        }

    async def _file_name(self, prediction: Prediction) -> str:
        """Return the name of the input file of a run without a prompt, or ""."""
        if title_of(prediction.inputs):
            return ""
        inputs = {prediction.id: encode_json(prediction.inputs)}
        found = await titles.of_files(self._services.database, prediction.account_id, inputs)
        return found.get(prediction.id, "")

    async def _recording(self, prediction: Prediction, view: DataView | None) -> RecordingView | None:
        """Return the first audio or video input of a transcript, if it is still stored."""
        if view is None or view.kind != data_views.TRANSCRIPT:
            return None
        sources = await self._services.database.read(lineage.input_files(prediction))
        return data_views.recording(
            (f"{MEDIA_PATH}{source.name}", source.content_type) for source in sources if source.name
        )

    def _before(self, prediction: Prediction) -> str:
        """Return the path of the input image from which the only output image was generated, or ""."""
        files = () if prediction.output is None else prediction.output.files
        if len(files) != 1 or not files[0].content_type.startswith("image/"):
            return ""
        urls = [
            value
            for name, value in prediction.inputs.items()
            if name in _BEFORE and isinstance(value, str) and value.startswith(self._media_url)
        ]
        return MEDIA_PATH + urls[0].removeprefix(self._media_url) if urls else ""

    def _unlock(self, prediction: Prediction) -> str:
        """Return how to enable an engine that follows the whole prompt, or "" if the model states nothing."""
        catalog = self._services.catalog
        if prediction.model not in catalog:
            return ""
        return catalog[prediction.model].unlock(self._services.predictions.terms)

    async def balance(self, account_id: str) -> str:
        return self._pages.balance(await self._services.database.read(accounts.by_id(account_id)))

    async def fragment(self, prediction: Prediction) -> str:
        return self._pages.text("predictions/result.html", **await self.values(prediction))


def _without_data(prediction: Prediction) -> Prediction:
    """Return a prediction without its data, as a rendered template stays in memory until it is collected."""
    if prediction.output is None:
        return prediction
    return msgspec.structs.replace(prediction, output=Output(words=prediction.output.words))


def title(catalog: Catalog, prediction: Prediction) -> str:
    """Return the prompt or text of a prediction in one line, or the title of its model."""
    return title_of(prediction.inputs) or model_title(catalog, prediction.model)


def file_stem(prediction: Prediction, name: str = "") -> str:
    """Return the name of downloaded files without an ending: the title as words, and the end of the id.

    `name` is the title of a run without a prompt.
    """
    words = (
        _NOT_WORDS.sub("-", (title_of(prediction.inputs) or name or prediction.model).lower())
        .strip("-")[:_MAX_STEM]
        .rstrip("-")
    )
    return f"{words or 'output'}_{prediction.id[-8:]}"


def data_file(prediction: Prediction) -> tuple[str, bytes, str] | None:
    """Return the name, content and media type of the file of an output without files, or None."""
    output = prediction.output
    if output is None or output.files or not output.first.data:
        return None
    value: Any = output.first.data
    value = value["value"] if value.keys() == {"value"} else value
    if isinstance(value, str):
        return f"{file_stem(prediction)}.txt", value.encode(), "text/plain; charset=utf-8"
    return f"{file_stem(prediction)}.json", msgspec.json.encode(value), "application/json"


def _warning(prediction: Prediction, data: dict[str, Any], view: DataView | None) -> str:
    """Return a note on a result with low confidence, or "": the engine's, or one on a transcript."""
    confidence = data.get("confidence")
    if not isinstance(confidence, int | float) or confidence >= _SURE:
        return ""
    if view is not None and view.kind == data_views.TRANSCRIPT:
        return f"Some words are uncertain (confidence {confidence:.2f}): compare them with the recording"
    return prediction.logs.strip()[:_MAX_WARNING]


def _input_kind(views: Sequence[OutputFileView], data: Mapping[str, Any]) -> str:
    """Return the kind of inputs that accept a result, or "" if no input does."""
    if not views:
        return "text" if next_models.text_of(data) else ""
    is_drawing = views[0].file.content_type.startswith(recent_files.DRAWING)
    return "" if is_drawing else views[0].kind


def are_files(value: object) -> bool:
    return isinstance(value, list) and any(
        isinstance(each, OutputFile) for each in cast("list[object]", value)
    )


def file_kind(file: OutputFile) -> str:
    """Return the kind of a file for display, as in `OutputFileView.kind`."""
    return next((kind for start, kind in _KINDS if file.content_type.startswith(start)), "file")


def _dimensions(info: dict[str, Any]) -> list[str]:
    parts = [f"{info['width']} × {info['height']}"] if "width" in info and "height" in info else []
    if isinstance(info.get("duration"), int | float):
        parts.append(f"{info['duration']:.1f} s")
    return parts


def data_text(data: dict[str, Any]) -> str:
    """Return a single text unchanged and other data as JSON, shortened to the limit."""
    if not data:
        return ""
    value: Any = data["value"] if data.keys() == {"value"} else data
    text = value if isinstance(value, str) else _json(value)
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "\n…"


def _json(value: object) -> str:
    """Return the beginning of a value as JSON, somewhat more than the limit: all of it can take seconds."""
    parts: list[str] = []
    length = 0
    # The encoder is a reference cycle, and would keep the values that it checks for circular references.
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2, check_circular=False)
    for part in encoder.iterencode(value):
        parts.append(part)
        length += len(part)
        if length > _MAX_CHARS:
            break
    return "".join(parts)
