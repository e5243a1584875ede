"""The abilities of `data/abilities.toml`: the models that share a card, and the words that find them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from sixfold.core.catalog.models import Model

_WORD = re.compile(r"[^\W_]+")
# Query words beyond this number are ignored.
_MAX_WORDS = 12


class Ability(msgspec.Struct, frozen=True):
    """One card of the catalog: its title, its models, and the words that find them."""

    title: str
    models: tuple[str, ...]
    words: frozenset[str]
    also: tuple[str, ...] = ()


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((resources.files("sixfold.data") / "abilities.toml").read_text("utf-8"))


@cache
def filler() -> frozenset[str]:
    """Return the words that a search ignores."""
    return frozenset(_table()["filler"].split())


@cache
def all_abilities() -> tuple[Ability, ...]:
    """Return the abilities in the order of the table."""
    return tuple(
        Ability(
            title,
            tuple(row["models"]),
            frozenset(words_of(f"{title} {row['words']}")),
            tuple(row.get("also", ())),
        )
        for title, row in _table().items()
        if title != "filler"
    )


@cache
def _by_model() -> Mapping[str, Ability]:
    return {model: ability for ability in all_abilities() for model in ability.models}


def ability_of(model: str) -> Ability | None:
    """Return the ability whose card contains a model, or None if the model has a separate card."""
    return _by_model().get(model)


def words_for(model: Model) -> frozenset[str]:
    """Return all words that find a model: those of its name, title, description and abilities."""
    own = words_of(f"{model.name} {model.title} {model.description}")
    return frozenset(own).union(*_synonyms(model.name))


def _synonyms(name: str) -> Iterable[frozenset[str]]:
    return (
        ability.words
        for ability in all_abilities()
        if name in ability.models or any(fnmatchcase(name, each) for each in ability.also)
    )


def query_words(text: str) -> list[str]:
    """Return the words of a search, without fillers unless all words are fillers."""
    words = words_of(text)[:_MAX_WORDS]
    return [word for word in words if word not in filler()] or words


def matches(words: frozenset[str], query: Iterable[str]) -> bool:
    """Return whether each query word, or its singular, is a prefix of one of the words."""
    return all(any(each.startswith(_singular(word)) for each in words) for word in query)


def _singular(word: str) -> str:
    """Return a word without the `s` of its plural."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
