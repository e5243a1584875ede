"""Video and audio files by their first bytes, and the length that they claim; nothing of them is decoded.

Only formats of the table that have a demuxer are ever opened, each with that one: playlists and scripts,
which would send a demuxer to other files or over the network, are none of them whatever they are called.
"""

from __future__ import annotations

from pathlib import Path

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.formats.edits import mapped
from sixfold.core.provenance.formats.parts import MalformedFile

_MAX_SECONDS = 1e7
_VIDEO = "film (MP4, MOV, WebM, AVI or GIF)"
_AUDIO = "sound (WAV, MP3, OGG, FLAC or MP4)"


def read(path: Path, wanted: str = "video") -> media_types.FileFormat:
    """Return the format; raises `UnusableInput` with a sentence for a file that is no video (or audio)."""
    with path.open("rb", buffering=0) as file:
        return _usable(file.read(media_types.MAGIC_BYTES), wanted)


def seconds(path: Path, wanted: str = "video", *, whole: bool = False) -> float | None:
    """Return the length that the file claims, or None; raises what `read` raises.

    With `whole`, also for a video that was cut off, which often keeps its index. What follows a sound end is
    left alone, and so are recordings without lengths. Audio plays as far as it goes.
    """
    with path.open("rb", buffering=0) as file, mapped(file) as data:
        kind = _usable(data, wanted)
        if whole and kind.is_video and not kind.is_complete(data):
            raise UnusableInput("The file is truncated or damaged.")
        try:
            found = kind.header(data).seconds
        except MalformedFile:
            return None
    return found if found is not None and 0 < found < _MAX_SECONDS else None


def _usable(head: bytes, wanted: str) -> media_types.FileFormat:
    kind = media_types.find(head)
    if kind is None or not kind.demuxer or (wanted == "video" and not kind.is_video):
        raise UnusableInput(f"The file is no {_VIDEO if wanted == 'video' else _AUDIO}")
    return kind
