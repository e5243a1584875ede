"""Events of a transcript: segments as an engine decodes them, and the rest at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from sixfold.api.gateway.openai import media_jobs

_decode = msgspec.json.Decoder(tuple[int, str]).decode


class TranscriptDeltas:
    """Renders the events of one transcript, whose deltas add up to its text."""

    def __init__(self) -> None:
        self._count = 0
        self._sent = ""

    def add(self, content: bytes) -> Mapping[str, Any] | None:
        """Return the event of a segment, which an engine has encoded as an array of its index and text.

        Return None for a segment that has been sent before: a lost run is repeated from its beginning.
        """
        number, text = _decode(content)
        if number != self._count:
            return None
        self._count += 1
        return self._delta(f" {text}" if number else text)

    async def finish(self, transcript: Mapping[str, Any]) -> AsyncGenerator[bytes]:
        """Yield the events of the segments that have not been sent, and the final event with the text."""
        text: str = transcript["text"]
        texts = [segment["text"] for segment in transcript["segments"]]
        if " ".join(texts[: self._count]) == self._sent and " ".join(texts) == text:
            pieces = [f" {each}" if number else each for number, each in enumerate(texts)][self._count :]
        else:
            # The segments do not add up to the text, or another attempt has decoded them differently.
            pieces = [text.removeprefix(self._sent)] if text.startswith(self._sent) else []
        for piece in filter(None, pieces):
            yield media_jobs.event(self._delta(piece))
        yield media_jobs.event({"type": "transcript.text.done", "text": text})

    def _delta(self, text: str) -> Mapping[str, Any]:
        self._sent += text
        return {"type": "transcript.text.delta", "delta": text}
