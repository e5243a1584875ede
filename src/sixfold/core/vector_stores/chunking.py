"""Division of a text into chunks for a vector store, whose token counts are estimated."""

from __future__ import annotations

from collections.abc import Iterator

DEFAULT_TOKENS, DEFAULT_OVERLAP = 800, 400
MIN_TOKENS, MAX_TOKENS = 100, 4096
_CHARS_PER_TOKEN = 3.5
# Separators at which a chunk may end, best first.
_BREAKS = ("\n\n", "\n", ". ", " ")


def split(text: str, max_tokens: int, overlap: int) -> Iterator[str]:
    """Yield chunks of at most an estimated number of tokens, which overlap with the preceding chunk."""
    size, back = int(max_tokens * _CHARS_PER_TOKEN), int(overlap * _CHARS_PER_TOKEN)
    start = 0
    while start < len(text):
        end = _end(text, start, size)
        chunk = text[start:end].strip()
        if chunk:
            yield chunk
        if end >= len(text):
            return
        begin = max(end - back, start + 1)
        space = text.find(" ", begin, end)
        start = end if not back else space + 1 if space > 0 else begin


def _end(text: str, start: int, size: int) -> int:
    """Return the end of a chunk: the last break in its second half."""
    end = start + size
    if end >= len(text):
        return end
    cuts = (text.rfind(sign, start + size // 2, end) for sign in _BREAKS)
    return next((cut + 1 for cut in cuts if cut > 0), end)
