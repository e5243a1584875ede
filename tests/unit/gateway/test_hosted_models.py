"""The bundled table of hosted models, and what it adds to a provider's own list."""

from __future__ import annotations

import datetime

import pytest

from sixfold.core.gateway import hosted_models
from sixfold.core.gateway.capabilities import ALL, CHAT, EMBEDDINGS, TOOLS, VISION, ServedModel, guess_model
from sixfold.core.gateway.hosted_models import HostedModel

ROWS = sorted(hosted_models.table().items())


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_row_has_its_date_source_and_plausible_facts(name: str, row: HostedModel) -> None:
    assert datetime.date(2025, 1, 1) < datetime.date.fromisoformat(row.as_of) < datetime.date(2100, 1, 1)
    assert row.source.startswith("https://")
    assert row.capabilities
    assert row.capabilities <= ALL
    chats = CHAT in row.capabilities
    assert chats is not (EMBEDDINGS in row.capabilities), name
    assert (row.max_output > 0) is chats
    assert (row.dimensions > 0) is not chats
    assert not row.context or max(row.max_output, 512) <= row.context


def test_unstated_model_gets_the_facts_of_its_family() -> None:
    model = hosted_models.completed(guess_model("gpt-5.4-2026-03-05"), "")
    assert (model.context, model.max_output, model.stated) == (1_050_000, 128_000, True)
    assert model.capabilities >= {CHAT, TOOLS, VISION}
    assert model.lacks == {EMBEDDINGS}
    ada = hosted_models.completed(guess_model("text-embedding-ada-002"), "")
    assert (ada.dimensions, ada.fixed_dimensions, ada.chat) == (1536, True, False)


def test_limit_stated_by_the_provider_precedes_the_table() -> None:
    stated = ServedModel("mistral-large-latest", frozenset({CHAT}), stated=True, context=1000)
    model = hosted_models.completed(stated, "mistral")
    assert (model.capabilities, model.lacks, model.context) == (frozenset({CHAT}), frozenset(), 1000)
    assert model.max_output == 262_144


@pytest.mark.parametrize(
    ("name", "provider"), [("gpt-99", ""), ("mistral-large-latest", ""), ("gpt-5.4", "groq"), ("", "groq")]
)
def test_model_without_a_row_stays_unknown(name: str, provider: str) -> None:
    assert hosted_models.completed(guess_model(name), provider) == guess_model(name)
    assert guess_model(name).limited is False
