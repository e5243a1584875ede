"""Splitting of a text into sentences while it is written."""

from __future__ import annotations

import re
from typing import Final

# A text without the end of a sentence is divided at a space after this length.
MAX_CHARS: Final = 300
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s|[。！？\n]")
# Strings that end with a period without ending a sentence: titles, abbreviations, and list numbers.
_NO_END = re.compile(r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|st|vs|no|e\.g|i\.e|z\.b|bzw|\d{1,3})\.\s$", re.I)
# The longest abbreviation with the spaces around it.
_TAIL = 16


class SentenceSplitter:
    """Returns each sentence as soon as its end has been written, without losing any text."""

    def __init__(self) -> None:
        self._text = ""
        # A sentence cannot end before this position.
        self._searched = 0

    def feed(self, text: str) -> list[str]:
        """Add text and return the sentences that are complete now."""
        sentences: list[str] = []
        # In slices, because the time of a search grows with the square of the text's length.
        for start in range(0, len(text), MAX_CHARS):
            self._text += text[start : start + MAX_CHARS]
            while (end := self._end()) is not None:
                sentences.append(self._text[:end])
                self._text, self._searched = self._text[end:], 0
        return sentences

    def rest(self) -> str:
        """Return the text after the last complete sentence, and reset the splitter."""
        text, self._text, self._searched = self._text, "", 0
        return text

    def _end(self) -> int | None:
        for match in _END.finditer(self._text, self._searched):
            end = match.end()
            if not _NO_END.search(self._text[max(0, end - _TAIL) : end]):
                return end
        if len(self._text) > MAX_CHARS:
            return self._text.rfind(" ", 0, MAX_CHARS) + 1 or MAX_CHARS
        self._searched = max(0, len(self._text) - _TAIL)
        return None
