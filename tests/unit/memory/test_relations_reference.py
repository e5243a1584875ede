"""docs/reference/relations.md has every relation of the table, with an example and a question."""

from __future__ import annotations

from sixfold.core.memory.relation_extraction import service as inference
from tests.architecture import source

PAGE = "docs/reference/relations.md"
TABLE = inference.table()


def row(name: str) -> str:
    first = next(pattern for pattern in TABLE.patterns if pattern.relation == name)
    relation = TABLE.relations[name]
    request = _spoken(relation.ask[0]) if relation.ask else ""
    titles = ", ".join(sorted(relation.fields | relation.inverse_fields))
    return f"| `{name}` | {first.example} | {request} | {titles} |"


def _spoken(question: str) -> str:
    """A question of the table with its first choices and names in it."""
    text = question.replace("{A}", "Ada Byron").replace("{B}", "Bell Labs").replace("{words}", "")
    while "(" in text:
        start, end = text.index("("), text.index(")")
        optional = text[end + 1 : end + 2] == "?"
        message = "" if optional else text[start + 1 : end].split("|")[0]
        text = text[:start] + message + text[end + 1 + optional :]
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + "?"


def test_every_relation_is_in_the_reference() -> None:
    names = dict.fromkeys(pattern.relation for pattern in TABLE.patterns)
    text = source.text(PAGE)
    missing = "\n".join(row(name) for name in names if row(name) not in text)
    assert not missing, f"put this into {PAGE}:\n{missing}"
    assert text.count("\n| `") == len(names)
