"""Recordings of sessions: the frames or poses that the viewer received, bounded in time and bytes."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from typing import Final

MAX_SECONDS: Final = 120
MAX_BYTES: Final = 64 * 2**20
# Recordings of one server, including those of ended sessions that were not collected yet.
MAX_RECORDINGS: Final = 8
# Recordings of one account, so that other accounts can record, too.
MAX_ACCOUNT_RECORDINGS: Final = 2


@dataclass(slots=True)
class SessionRecording:
    """The recorded pieces of a session: their times in milliseconds, formats and bytes."""

    prompt: str
    account_id: str = ""
    pieces: list[tuple[int, str, bytes]] = field(default_factory=list[tuple[int, str, bytes]])
    size: int = 0

    @property
    def seconds(self) -> float:
        """Return the time between the first piece and the last."""
        return (self.pieces[-1][0] - self.pieces[0][0]) / 1000 if self.pieces else 0.0

    def add(self, t: int, format_name: str, data: bytes) -> None:
        """Add a frame (`jpeg`) or a pose (`json`), unless the recording is full."""
        if self.size + len(data) > MAX_BYTES or (self.pieces and t - self.pieces[0][0] > MAX_SECONDS * 1000):
            return
        self.pieces.append((t, format_name, data))
        self.size += len(data)

    def archive(self) -> bytes:
        """Return a ZIP file with a file for each piece, named by its time from the start."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for t, format_name, data in self.pieces:
                # A fixed date: equal recordings have equal bytes.
                entry = zipfile.ZipInfo(f"{t - self.pieces[0][0]:08d}.{format_name}")
                archive.writestr(entry, data)
        return target.getvalue()
