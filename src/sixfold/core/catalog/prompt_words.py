"""The words of a prompt that an engine acted upon, and those that it ignored."""

from __future__ import annotations

import msgspec

# Maximum length of the list of understood or ignored words.
MAX_WORDS = 64


class PromptWords(msgspec.Struct, frozen=True):
    """The words of a prompt that an engine acted upon, and those that it ignored.

    Both are lower case, in order and without function words; an engine that processes prompts as a whole
    reports neither list. A list has at most 64 words.
    """

    understood: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __or__(self, other: PromptWords) -> PromptWords:
        """Return the words of both objects, for example of two parts of a workflow."""
        if not (self.understood or self.ignored):
            return other
        understood = dict.fromkeys((*self.understood, *other.understood))
        ignored = dict.fromkeys((*self.ignored, *other.ignored))
        return PromptWords(tuple(understood)[:MAX_WORDS], tuple(ignored)[:MAX_WORDS])


NO_WORDS = PromptWords()
