"""Detection of video and audio formats, and reading of the declared duration, without decoding.

A file is opened only if its format has a demuxer in the table, and only with that demuxer. Playlists and
scripts, which could make a demuxer open other files or URLs, are rejected whatever their file name is.
"""

from __future__ import annotations

from pathlib import Path

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.formats.edits import mapped
from sixfold.core.provenance.formats.parts import MalformedFile

_MAX_SECONDS = 1e7
_VIDEO = "a video (MP4, MOV, WebM, AVI or GIF)"
_AUDIO = "an audio file (WAV, MP3, OGG, FLAC or MP4)"


def read(path: Path, kind: str = "video") -> media_types.FileFormat:
    """Return the format of a file; raises `UnusableInput` if it is not of the `kind` `video` or `audio`."""
    with path.open("rb", buffering=0) as file:
        return _detect(file.read(media_types.MAGIC_BYTES), kind)


def seconds(path: Path, kind: str = "video", *, whole: bool = False) -> float | None:
    """Return the duration that the file declares, or None; raises `UnusableInput` as `read` does.

    With `whole`, a truncated video is rejected as well, even if its index is intact. Data after the end of
    the file's structure, recordings without a declared length and truncated audio are accepted.
    """
    with path.open("rb", buffering=0) as file, mapped(file) as data:
        form = _detect(data, kind)
        if whole and form.is_video and not form.is_complete(data):
            raise UnusableInput("The file is truncated or damaged.")
        try:
            duration = form.header(data).seconds
        except MalformedFile:
            return None
    return duration if duration is not None and 0 < duration < _MAX_SECONDS else None


def _detect(head: bytes, kind: str) -> media_types.FileFormat:
    form = media_types.find(head)
    if form is None or not form.demuxer or (kind == "video" and not form.is_video):
        raise UnusableInput(f"The file is not {_VIDEO if kind == 'video' else _AUDIO}")
    return form
