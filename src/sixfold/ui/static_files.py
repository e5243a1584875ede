"""The static files: style sheets, scripts, fonts and example outputs."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.ui.catalog import example_outputs
from sixfold.ui.templating import STATIC
from sixfold.web import requests, responses
from sixfold.web.routing import RouteEntry

_SUFFIXES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".webm": "video/webm",
    ".mp3": "audio/mpeg",
}
# Templates link to files by content hash, so browsers may cache them forever.
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
# Files of these types are also stored compressed; the others are compressed by their format.
_TEXTS = ("text/css", "text/javascript", "image/svg+xml")
_FOLDERS = {"/static": STATIC, "/static/fonts": STATIC / "fonts", "/static/examples": example_outputs.FOLDER}


@functools.cache
def _read(folder: Path) -> tuple[Mapping[str, tuple[bytes, str]], Mapping[str, bytes]]:
    """Return the contents and content types of the files in a folder, and compressed contents, by name."""
    files = {
        path.name: (path.read_bytes(), _SUFFIXES[path.suffix])
        for path in folder.iterdir()
        if path.suffix in _SUFFIXES
    }
    compressed = {
        name: gzip.compress(content, mtime=0)
        for name, (content, content_type) in files.items()
        if content_type in _TEXTS
    }
    return files, compressed


class StaticFiles:
    """The files of one folder, read once at the start."""

    def __init__(self, folder: Path) -> None:
        self._files, self._compressed = _read(folder)

    async def show(self, request: Request) -> Response:
        """Return a file; raises `NotFound`."""
        name = requests.path_value(request, "name")
        file = self._files.get(name)
        if file is None:
            raise errors.NotFound
        if name not in self._compressed:
            return Response(file[0], 200, _IMMUTABLE, file[1])
        headers = {**_IMMUTABLE, "Vary": "Accept-Encoding"}
        if not responses.accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(file[0], 200, headers, file[1])
        return Response(self._compressed[name], 200, {**headers, "Content-Encoding": "gzip"}, file[1])


def routes() -> tuple[RouteEntry, ...]:
    handlers = {f"{path}/{{name}}": StaticFiles(folder).show for path, folder in _FOLDERS.items()}
    return tuple(
        RouteEntry(path, {"GET": handler, "HEAD": handler}, access=rights.PUBLIC)
        for path, handler in handlers.items()
    )
