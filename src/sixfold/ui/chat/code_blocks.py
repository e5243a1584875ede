"""Syntax highlighting: spans with the class names of Pygments, limited in size and time."""

from __future__ import annotations

import functools
import html
import re
import time
from collections.abc import Callable
from typing import Any

from pygments import lexers
from pygments.lexer import Lexer, RegexLexerMeta
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound, Future

MAX_CHARS = 20_000
_MAX_LINE_CHARS = 1000
_MAX_SECONDS = 0.2
# The time limit applies between tokens. The lexer of C compares a run of spaces with itself several times:
# 4,000 spaces took 1.3 s, and 20,000 took 27 s.
_LONG_SPACE = re.compile(r"\s{100}")
# A repeated group can match a text in exponentially many ways, such as each pair of backslashes in
# `(\\\\|\\.)*'`: 60 bytes of Bash took 100 s. A possessive repetition tries one of them.
_REPEATED_GROUP = re.compile(r"(?<!\\)((?:\\\\)*\)(?:[*+]|\{\d*,\d*\}))(?![?+])")
# Lexers use regular expressions, which may be slow; the time of these was measured on hostile input. The
# lexer of HTTP would select any other lexer by the content type.
_LANGUAGES = re.compile(
    r"bash|c|c\+\+|console|cpp|cs|csharp|css|diff|docker|dockerfile|go|golang|haskell|hs|html|"
    r"ini|java|javascript|js|json|jsx|kotlin|lua|make|makefile|markdown|md|nginx|php|powershell|py|"
    r"python|py3|python3|r|rb|rs|ruby|rust|scala|sh|shell|sql|swift|toml|ts|tsx|typescript|xml|yaml|"
    r"yml|zsh"
)


def _possessive(_lexer: type, regex: str | Future, flags: int, _state: str) -> Callable[..., Any]:
    pattern: Any = regex.get() if isinstance(regex, Future) else regex
    return re.compile(_REPEATED_GROUP.sub(r"\1+", pattern), flags).match


RegexLexerMeta._process_regex = _possessive  # pyright: ignore[reportAttributeAccessIssue]  # not in the stub


def highlight(code: str, language: str) -> str:
    """Return code as HTML, without highlighting if its language is unknown or it is too long."""
    lexer = _lexer(language.lower()) if len(code) <= MAX_CHARS and _has_short_parts(code) else None
    if lexer is None:
        return html.escape(code)
    deadline = time.thread_time() + _MAX_SECONDS
    parts: list[str] = []
    for kind, text in lexer.get_tokens(code):
        if time.thread_time() > deadline:
            return html.escape(code)
        name = _class_name(kind)
        escaped = html.escape(text)
        parts.append(f'<span class="{name}">{escaped}</span>' if name else escaped)
    return "".join(parts)


def _has_short_parts(code: str) -> bool:
    return _LONG_SPACE.search(code) is None and all(
        len(line) <= _MAX_LINE_CHARS for line in code.splitlines()
    )


@functools.lru_cache(64)
def _lexer(language: str) -> Lexer | None:
    if _LANGUAGES.fullmatch(language) is None:
        return None
    try:
        # A code block in Markdown would select any other lexer.
        return lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False, handlecodeblocks=False)
    except ClassNotFound:
        return None


@functools.lru_cache(256)
def _class_name(kind: _TokenType) -> str:
    """Return one of the class names that the style sheet colors, or an empty string."""
    for parent, name in _CLASSES.items():
        if kind in parent:
            return name
    return ""


_CLASSES = {
    Token.Comment: "c",
    Token.Keyword: "k",
    Token.Literal.String: "s",
    Token.Literal.Number: "m",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Tag: "k",
    Token.Name.Attribute: "f",
    Token.Name.Builtin: "b",
    Token.Name.Decorator: "b",
    Token.Generic.Deleted: "d",
    Token.Generic.Inserted: "i",
    Token.Generic.Heading: "k",
}
