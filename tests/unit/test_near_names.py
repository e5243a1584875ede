"""Suggestions for unknown names."""

from __future__ import annotations

import pytest

from sixfold import near_names
from sixfold.core.catalog import unknown_names
from sixfold.core.gateway import service_names


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("widht", ("prompt", "width", "height"), ["width"]),
        ("Prompt", ("prompt",), ["prompt"]),
        ("serv", ("serve", "server", "service", "serves", "run"), ["serve", "serves", "server"]),
        ("greter", ("render", "bg-remover", "greeter"), ["greeter"]),
        ("x", ("prompt",), []),
        ("", ("prompt",), []),
        ("prompt", (), []),
    ],
)
def test_similar_names_are_most_similar_first(name: str, names: tuple[str, ...], found: list[str]) -> None:
    assert near_names.similar(name, names) == found


def test_question_joins_names_or_returns_the_alternative() -> None:
    assert near_names.question("ra3", ("ra1", "ra2")) in (
        "did you mean ra1 or ra2?",
        "did you mean ra2 or ra1?",
    )
    assert near_names.question("x", ("prompt",), "use prompt") == "use prompt"
    assert near_names.question("ab1", ("ab2", "ab3", "ab4")).count(" or ") == 1


def test_long_names_and_many_names_are_limited() -> None:
    names = [f"name-{number}" for number in range(100_000)]
    assert near_names.similar("name-99999", names)
    assert "name-99999" not in near_names.similar("name-99999", names)
    assert near_names.similar("a" * 10_000_000, ["a" * 200]) == ["a" * 200]


def test_models_are_compared_within_their_prefix() -> None:
    names = ("ra1", "comfyui/flux", "comfyui/flux-dev", "local/flux")
    assert unknown_names.similar_models("comfyui/fluxx", names) == "comfyui/flux"
    assert unknown_names.similar_models("flux", names) == ""
    assert unknown_names.similar_models("ra2", names) == "ra1"


def test_only_the_first_unknown_names_get_suggestions() -> None:
    clause = service_names.not_found([f"chat{number}" for number in range(50)], ())
    assert clause.count("did you mean chat?") == 5
    assert clause.endswith("chat49 not found")
