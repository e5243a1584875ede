"""Pages and questions in languages other than English, each language in a separate memory.

The names in `languages.toml` only connect questions with pages: slugs and titles have numbers.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.corpora.wiki import Page, Question, Wiki

_FILE = Path(__file__).with_suffix(".toml")


def languages() -> dict[str, Wiki]:
    return {name: _corpus(rows) for name, rows in tomllib.loads(_FILE.read_text("utf-8")).items()}


def _corpus(rows: dict[str, list[list[str]]]) -> Wiki:
    slugs = {name: f"notes/{number:02}" for number, (name, _) in enumerate(rows["pages"], 1)}
    pages = tuple(Page(slugs[name], slugs[name], body, "note") for name, body in rows["pages"])
    questions = tuple(Question(text, (slugs[name],), "") for text, name in rows["questions"])
    return Wiki(pages, questions)
