"""Patterns that are searched in bodies begin with fixed text, and quick tests before them miss nothing."""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any

import pytest

from sixfold.api.gateway import chat_documents, provider_objects, web_search
from sixfold.api.gateway.openai.responses import references
from sixfold.api.gateway.vector_stores import file_search
from sixfold.core.gateway.attachments import media_inlining
from sixfold.core.gateway.requirements import maximum_usage, provider_tools, requirements
from sixfold.core.input_limits import byte_search

COMPILER: Any = importlib.import_module("re._compiler")
PARSER: Any = importlib.import_module("re._parser")
MODULES = (
    *(byte_search, chat_documents, file_search, maximum_usage, media_inlining),
    *(provider_objects, provider_tools, references, requirements, web_search),
)


def patterns(module: ModuleType) -> dict[str, re.Pattern[bytes]]:
    values: dict[str, Any] = vars(module)
    results = {f"{module.__name__} {name}": value for name, value in values.items()}
    results |= {
        f"{module.__name__} {name}[{key!r}]": inner
        for name, value in values.items()
        if isinstance(value, dict)
        for key, inner in value.items()
    }
    return {
        name: value
        for name, value in results.items()
        if isinstance(value, re.Pattern) and isinstance(value.pattern, bytes)
    }


PATTERNS = {name: pattern for module in MODULES for name, pattern in patterns(module).items()}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_for_bodies_begins_with_fixed_text(name: str) -> None:
    parsed = PARSER.parse(PATTERNS[name].pattern)
    prefix, _, _ = COMPILER._get_literal_prefix(parsed, PATTERNS[name].flags)

    assert prefix


@pytest.mark.parametrize("start", [*range(0, 70, 7), 1000, 8191])
@pytest.mark.parametrize("length", [1024, 1055, 1056])
def test_base64_of_any_alignment_is_never_missed(start: int, length: int) -> None:
    body = b" " * start + (b"abcXYZ019+/" * length)[:length] + b" "

    assert byte_search.may_have_base64(body, 1024)


def test_text_has_no_base64() -> None:
    text = b"The quick brown fox jumps over the lazy dog. " * 1000

    assert not byte_search.may_have_base64(text, 1024)
