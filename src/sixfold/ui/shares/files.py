"""The files of a shared object, served under the path of the share.

Their names at `/media/` remain readable by anyone who knows them, so a shared page never contains one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.database import one
from sixfold.core.media import thumbnails
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.media.media import MEDIA_PATH, MediaSource
from sixfold.core.provenance.formats import media_types
from sixfold.web import files
from sixfold.web.files import ServedFile
from sixfold.web.services import WebServices

_MEDIA_NAME = re.compile(re.escape(MEDIA_PATH) + r"([A-Za-z0-9_-]{16,64}\.[a-z0-9]{1,8})")
# A URL of this server, or one relative to the page; a visitor cannot open either.
_OWN_ADDRESS = re.compile(r'\s(?:href|src)="(?!https?:|mailto:|#|data:|/s/)[^"]*"')
_MAX_FILES = 200
_TAG_CHARS = 32
PRIVATE = "private, no-cache"


class SharedFiles(msgspec.Struct):
    """The files of a share by name; `aliases` maps names at `/media/` to names in the share."""

    sources: dict[str, str | MediaSource] = {}
    aliases: dict[str, str] = {}

    def add_names(self, names: Iterable[str]) -> None:
        """Add files by their names at `/media/`, up to the limit of a share."""
        for name in names:
            if name not in self.aliases and len(self.sources) < _MAX_FILES:
                alias = f"{len(self.aliases)}.{name.rpartition('.')[2]}"
                self.aliases[name] = alias
                self.sources[alias] = name

    def add_texts(self, base_url: str, texts: Iterable[str]) -> None:
        for text in texts:
            self.add_names(_MEDIA_NAME.findall(text.replace(base_url + MEDIA_PATH, MEDIA_PATH)))

    def add(self, label: str, source: MediaSource) -> str:
        """Add a file without a name at `/media/` and return its name in the share."""
        alias = f"{label}.{media_types.EXTENSIONS.get(source.content_type, 'bin')}"
        self.sources[alias] = source
        return alias

    def rename(self, base_url: str, path: str, text: str) -> str:
        """Replace the names at `/media/` in a text with paths below that of the share."""
        text = text.replace(base_url + MEDIA_PATH, MEDIA_PATH)
        return _MEDIA_NAME.sub(lambda match: f"{path}/files/{self.aliases.get(match[1], 'missing')}", text)

    def rewrite(self, base_url: str, path: str, html: str) -> str:
        """Return HTML with the files renamed and other URLs of this server removed."""
        return _OWN_ADDRESS.sub("", self.rename(base_url, path, html))


async def source_of(services: WebServices, account_id: str, name: str) -> MediaSource:
    """Return a file of an account by its name at `/media/`; raises `NotFound`."""
    row = await services.database.read(one("media_by_name", name=name))
    if row is None or row["account_id"] != account_id:
        raise errors.NotFound("The file was not found")
    return MediaSource(row["blob"], row["content_type"], row["size"])


async def serve(
    services: WebServices, request: Request, account_id: str, source: str | MediaSource
) -> Response:
    """Return a file of an account, or with `w` a small image of it.

    It never redirects to the object store, whose links would outlive the share.
    """
    if isinstance(source, str):
        source = await source_of(services, account_id, source)
    tag = digest_of(source.blob)[:_TAG_CHARS]
    width = request.query_params.get("w")
    if width is not None:
        number = int(width) if width.isascii() and width.isdigit() and len(width) < 6 else 0
        small = await services.media.thumbnails.find(source.blob, source.content_type, number)
        if small is not None:
            served = ServedFile(
                services.blobs, small.key, small.size, thumbnails.MEDIA_TYPE, f"{tag}-{number}", PRIVATE
            )
            return await files.serve(request, served)
    kind = source.content_type or media_types.UNKNOWN
    return await files.serve(
        request, ServedFile(services.blobs, source.blob, source.size, kind, tag, PRIVATE)
    )
