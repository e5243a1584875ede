"""The latest files of the account that fit an input, offered in the file fields of forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sixfold.core.catalog.models import Model
from sixfold.core.clock import rfc3339
from sixfold.core.media import thumbnails
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions.history import recent_files
from sixfold.core.predictions.history.recent_files import RecentFile
from sixfold.ui.auth import PageUser
from sixfold.ui.templating import model_title
from sixfold.web.services import WebServices

_LIMIT = 12
_KIND_CHARS = 5


class InputFile(msgspec.Struct, frozen=True):
    """A file that a field offers; `url` is the value of the input."""

    file: RecentFile
    url: str
    path: str

    @property
    def label(self) -> str:
        """The prompt that generated the file, or the name or the time of its upload."""
        moment = (rfc3339(self.file.created_at) or "")[5:16].replace("T", " ")
        return self.file.title or f"Upload, {moment}"

    @property
    def has_thumbnail(self) -> bool:
        """Whether the server can make thumbnails of the file."""
        return thumbnails.is_offered(self.file.content_type)

    @property
    def ending(self) -> str:
        """A short name of the file's kind, such as `wav`."""
        detail = self.file.content_type.partition(";")[0].rpartition("/")[2].replace("mpeg", "mp3")
        return detail.removeprefix("x-").rpartition("-")[2][:_KIND_CHARS]


RecentFiles = Mapping[str, Sequence[InputFile]]


async def recent(services: WebServices, user: PageUser | None, model: Model) -> RecentFiles:
    """Return the user's latest files for each kind of media input of a model."""
    kinds = sorted({descriptor.type for descriptor in model.media_inputs})
    if user is None:
        return {}
    files: dict[str, list[InputFile]] = {}
    for kind in kinds:
        for file in await recent_files.find(services.database, user.tenant, kind, _LIMIT):
            path = f"{MEDIA_PATH}{file.name}"
            named = msgspec.structs.replace(file, title=model_title(services.catalog, file.title))
            files.setdefault(kind, []).append(InputFile(named, f"{services.settings.base_url}{path}", path))
    return files
