"""The content of a share: the parts of a run, workflow, chat or memory page that visitors may see."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from markupsafe import Markup

from sixfold import errors
from sixfold.core.catalog.models import Model
from sixfold.core.concurrency.single_thread import SingleThread
from sixfold.core.files.files import AccountFile
from sixfold.core.gateway.conversations.chats import ChatStore
from sixfold.core.media.drawings import Drawing
from sixfold.core.media.media import MEDIA_PATH, MediaSource
from sixfold.core.memory import markdown
from sixfold.core.predictions import lineage
from sixfold.core.predictions.models import Prediction
from sixfold.core.shares import objects
from sixfold.core.shares.shares import Share
from sixfold.core.shares.text_inputs import text_inputs
from sixfold.core.workflows.workflows import Workflow
from sixfold.ui.catalog import next_models
from sixfold.ui.chat import messages
from sixfold.ui.chat.rendering import RenderedTexts
from sixfold.ui.memory import formatting, reading
from sixfold.ui.memory.markdown import RenderContext
from sixfold.ui.predictions import data_drawings, data_views, output_view
from sixfold.ui.predictions.output_view import OutputFileView
from sixfold.ui.shares.files import SharedFiles
from sixfold.ui.workflows import WorkflowCards
from sixfold.web.services import WebServices

MAX_MESSAGES = 200
_MAX_VALUE = 4000
_WORDS = ("no", "yes")
_PICTURED = ("image", "video", "audio", "model3d")
_STYLE = re.compile("<style>.*?</style>", re.DOTALL)
# The columns of a graph on wide and narrow screens and phones; larger graphs are drawn for wide screens only.
_COLUMNS, _MOST_REDRAWN = (6, 3, 1), 60
# Files of a shared workflow.
GRAPH, DOWNLOAD = "graph.svg", "workflow"
# Prepares the pages of large runs.
_WRITER = SingleThread("shares")


class SharedContent(msgspec.Struct):
    """The title, the description and the files of a share, and the variables of its template.

    `image` is the name of the file that represents it in a preview, or "", and `drawing` its data.
    """

    title: str
    description: str
    files: SharedFiles = msgspec.field(default_factory=SharedFiles)
    image: str = ""
    drawing: Drawing | None = None
    values: dict[str, Any] = {}
    workflow: Workflow | None = None


class SharedContents:
    """Reads the objects of shares; raises `NotFound` for an object that no longer exists."""

    def __init__(self, services: WebServices, workflow_list: WorkflowCards | None) -> None:
        self._services = services
        self._workflows = workflow_list
        self._chats = ChatStore(services.database, services.conversations)
        self._texts = RenderedTexts()
        self._base_url = services.settings.base_url
        self._readers: Mapping[str, Callable[[Share, str], Awaitable[SharedContent]]] = {
            "run": self._run,
            "workflow": self._workflow,
            "chat": self._chat,
            "page": self._page,
        }

    async def read(self, share: Share, path: str) -> SharedContent:
        return await self._readers[share.kind](share, path)

    # -- runs ------------------------------------------------------------------------------------

    async def _run(self, share: Share, path: str) -> SharedContent:
        database = self._services.database
        prediction = await objects.run(database, share.tenant, share.object_id)
        stored = await database.read(lineage.stored_inputs(prediction)) if share.has_inputs else {}
        model = await self._model(prediction, share.account_id)
        # The vectors of 2,048 texts, or a series of 20,000 dates, take half a second to show.
        return await _WRITER.run_large(prediction.size, self._run_content, path, prediction, stored, model)

    def _run_content(
        self, path: str, prediction: Prediction, stored: Mapping[str, MediaSource], model: Model | None
    ) -> SharedContent:
        title = output_view.title(self._services.catalog, prediction)
        output = prediction.output
        data = {} if output is None else output.first.data
        answer = self._plain(next_models.text_of(data))
        credit = f"Made with {model.title if model else prediction.model} on Sixfold"
        content = SharedContent(title, formatting.excerpt(answer) or credit)
        outputs = () if output is None else output.files
        content.files.add_names(file.name for file in outputs)
        views = [
            OutputFileView(
                f"{path}/files/{content.files.aliases[file.name]}", file, output_view.file_kind(file)
            )
            for file in outputs
            if file.name in content.files.aliases
        ]
        pictures = [view for view in views if view.kind in _PICTURED]
        content.image = pictures[0].url.rpartition("/")[2] if pictures else ""
        text = self._plain(output_view.data_text(data))
        inputs = text_inputs(prediction.task.inputs, model)
        view = data_views.draw(prediction.model, inputs, data)
        if text and not outputs and content.description == credit:
            content.drawing = data_drawings.draw(prediction.model, inputs, data)
        input_files = self._input_files(content, stored, path)
        content.values = {
            "files": views,
            "model": model,
            "may_make": model is not None and model.name in self._services.catalog,
            "data": text,
            "text": self._plain(output_view.data_text({"value": next_models.text_of(data)})),
            # The text of the data is shortened, so that the drawing may have more of it.
            "view": view if text and view and self._plain(view.text) == view.text else None,
            "others": {} if output is None else self._others(output.named),
            "inputs": _text_inputs(prediction, model),
            "recording": data_views.recording((url, kind) for _, kind, url in input_files),
            "input_files": input_files,
            "prediction": prediction,
            "stem": output_view.file_stem(prediction),
        }
        return content

    async def _model(self, prediction: Prediction, account_id: str) -> Model | None:
        try:
            return await self._services.predictions.find(prediction.model, account_id)
        except errors.NotFound:
            return None

    def _others(self, named: Mapping[str, Any]) -> dict[str, str]:
        return {
            name: self._plain(output_view.data_text({"value": value}))
            for name, value in named.items()
            if not output_view.are_files(value)
        }

    def _plain(self, text: str) -> str:
        """Return the data of an output, or "" if it contains the path of a file."""
        return "" if any(address in text for address in (MEDIA_PATH, "/uploads/")) else text

    def _input_files(
        self, content: SharedContent, stored: Mapping[str, MediaSource], path: str
    ) -> list[tuple[str, str, str]]:
        return [
            (name, source.content_type, f"{path}/files/{content.files.add(f'input-{name}', source)}")
            for name, source in sorted(stored.items())
        ]

    # -- workflows, chats and pages --------------------------------------------------------------

    async def _workflow(self, share: Share, path: str) -> SharedContent:
        if self._workflows is None:
            raise errors.NotFound("This server does not serve workflows")
        await self._services.workflows.load()
        workflow = await self._workflows.find(share.object_id, share.account_id)
        count = len(workflow.graph)
        nodes = f"{count} node{'' if count == 1 else 's'}"
        # An import without a description states its size.
        own = "" if workflow.description.startswith("Imported: ") else workflow.description
        values = {"workflow": workflow, "about": own, "nodes": nodes, "drawings": self._drawings(workflow)}
        return SharedContent(workflow.name, own or f"A workflow of {nodes}", values=values, workflow=workflow)

    def _drawings(self, workflow: Workflow) -> list[Markup]:
        """Return the graph for wide and narrow screens, which the stylesheet of the page colors."""
        counts = _COLUMNS if len(workflow.graph) <= _MOST_REDRAWN else _COLUMNS[:1]
        drawn = [self._workflows.draw(workflow, count) for count in counts] if self._workflows else []
        return [Markup(_STYLE.sub("", each, count=1)) for each in drawn]  # noqa: S704 - escaped by `draw`

    def draw(self, workflow: Workflow) -> str:
        return "" if self._workflows is None else self._workflows.draw(workflow)

    async def _chat(self, share: Share, path: str) -> SharedContent:
        chat = await self._chats.get(share.tenant, share.object_id)
        items, is_cut = await self._chats.items(share.tenant, chat.id, MAX_MESSAGES, share.last_place + 1)
        parsed_messages = [messages.parse(item.id, item.place, item.item, item.detail) for item in items]
        visible = [message for message in parsed_messages if message is not None]
        answer = next((message.text for message in visible if message.role == "assistant"), "")
        content = SharedContent(chat.title, formatting.excerpt(answer) or "A chat")
        content.files.add_texts(self._base_url, (message.text for message in visible))
        ids = [file.id for message in visible for file in message.shown_files] if share.has_inputs else []
        stored = {file.id: file for file in await self._services.files.some(share.tenant, ids)}
        rows: list[dict[str, Any]] = []
        for message in visible:
            html = await self._texts.html(message.text) if message.role == "assistant" else ""
            rows.append(
                {
                    "message": message,
                    "text": content.files.rename(self._base_url, path, message.text),
                    "html": Markup(content.files.rewrite(self._base_url, path, html)),  # noqa: S704 - rendered safely above
                    "files": _attached(stored, content, message, path),
                }
            )
        pictures = [alias for alias in content.files.sources if alias.endswith((".png", ".jpg", ".webp"))]
        content.image = pictures[0] if pictures else ""
        content.values = {"rows": rows, "is_cut": is_cut}
        return content

    async def _page(self, share: Share, path: str) -> SharedContent:
        page = await self._services.database.read(objects.page(share.tenant, share.object_id))
        body = markdown.without_comments(page.body)
        content = SharedContent(page.title, formatting.excerpt(body) or "A page")
        content.files.add_texts(self._base_url, [body])
        context = RenderContext(page.slug, page.title, None, account_id=page.account_id)
        html = (await reading.render_page(body, context)).html
        content.values = {
            "html": Markup(content.files.rewrite(self._base_url, path, html)),  # noqa: S704 - rendered safely above
            "page": page,
        }
        pictures = [alias for alias in content.files.sources if alias.endswith((".png", ".jpg", ".webp"))]
        content.image = pictures[0] if pictures else ""
        return content


def _attached(
    stored: Mapping[str, AccountFile], content: SharedContent, message: messages.StoredMessage, path: str
) -> list[tuple[str, bool, str]]:
    """Return the name, whether it is an image, and the address of each file of a question."""
    rows: list[tuple[str, bool, str]] = []
    for number, each in enumerate(message.shown_files):
        file = stored.get(each.id)
        if file is not None:
            source = MediaSource(file.blob, file.content_type, file.size)
            alias = content.files.add(f"file-{message.place}-{number}", source)
            rows.append((each.name, each.is_image, f"{path}/files/{alias}"))
    return rows


def _text_inputs(prediction: Prediction, model: Model | None) -> list[tuple[str, str]]:
    """Return the names and texts of the inputs that are not empty."""
    rows: list[tuple[str, str]] = []
    for name, value in text_inputs(prediction.inputs, model).items():
        if value is None or value in ("", [], {}):
            continue
        text = _WORDS[value] if isinstance(value, bool) else value
        text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        rows.append((name, text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "…"))
    return rows
