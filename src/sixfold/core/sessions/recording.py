"""Recordings of the frames or poses that a session's viewer received, limited in time and size.

Recordings are stored on disk, because those of a server can use 1 GiB in total.
"""

from __future__ import annotations

import io
import tempfile
import time
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

MAX_SECONDS: Final = 120
MAX_BYTES: Final = 64 * 2**20
# Maximum recordings of one server, including those of ended sessions that were not collected yet.
MAX_RECORDINGS: Final = 8
# Maximum recordings of one account, so that other accounts can record as well.
MAX_ACCOUNT_RECORDINGS: Final = 2


# A recording of an ended session that is not collected within this many seconds is deleted.
KEPT_SECONDS: Final = 600.0


class SessionRecording:
    """The frames or poses of a session in a temporary file of `folder`, with times in milliseconds."""

    def __init__(self, prompt: str, account_id: str = "", folder: Path | None = None) -> None:
        self.prompt = prompt
        self.account_id = account_id
        # The time, format and size of each frame or pose.
        self.pieces: list[tuple[int, str, int]] = []
        self.size = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  closed with the recording
        weakref.finalize(self, self._file.close)

    @property
    def seconds(self) -> float:
        """The seconds between the first frame or pose and the last."""
        return (self.pieces[-1][0] - self.pieces[0][0]) / 1000 if self.pieces else 0.0

    def add(self, t: int, format_name: str, data: bytes) -> None:
        """Add a frame (`jpeg`) or a pose (`json`), unless the recording or the disk is full."""
        if self.size + len(data) > MAX_BYTES or (self.pieces and t - self.pieces[0][0] > MAX_SECONDS * 1000):
            return
        try:
            self._file.seek(self.size)
            self._file.write(data)
            self._file.flush()
        except OSError:
            return
        self.pieces.append((t, format_name, len(data)))
        self.size += len(data)

    def archive(self) -> bytes:
        """Return a ZIP file with a file for each frame or pose, named by its time from the start."""
        target = io.BytesIO()
        self._file.seek(0)
        with zipfile.ZipFile(target, "w") as archive:
            for t, format_name, size in self.pieces:
                # A fixed date, so that equal recordings have equal bytes.
                entry = zipfile.ZipInfo(f"{t - self.pieces[0][0]:08d}.{format_name}")
                archive.writestr(entry, self._file.read(size))
        return target.getvalue()


class EndedRecordings:
    """Recordings that have ended but were not collected yet; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recordings: dict[str, tuple[float, SessionRecording]] = {}

    def add(self, session_id: str, recording: SessionRecording) -> None:
        """Add a recording; if there are too many, the oldest are deleted."""
        self._recordings[session_id] = (self._clock(), recording)
        account_id = recording.account_id
        names = [name for name, (_, each) in self._recordings.items() if each.account_id == account_id]
        for oldest in (*names[:-MAX_ACCOUNT_RECORDINGS], *list(self._recordings)[:-MAX_RECORDINGS]):
            self._recordings.pop(oldest, None)

    def take(self, session_id: str) -> SessionRecording | None:
        """Remove a recording and return it, or return None if it does not exist."""
        self.sweep()
        return self._recordings.pop(session_id, (0.0, None))[1]

    def sweep(self) -> None:
        """Delete the recordings that were not collected in time."""
        earliest = self._clock() - KEPT_SECONDS
        self._recordings = {name: each for name, each in self._recordings.items() if each[0] >= earliest}
