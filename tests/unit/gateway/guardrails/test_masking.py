"""Masking: detected secrets, in whole and streamed texts, in linear time."""

from __future__ import annotations

import random
import time

import pytest

from sixfold import errors
from sixfold.core.gateway.guardrails.masking import HOLD, TextMasker, apply, mask
from sixfold.core.gateway.guardrails.models import KINDS
from sixfold.core.input_limits.budget import InputBudget, Limit

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7bq1\n" * 60 + "-----END RSA PRIVATE KEY-----"
FOUND = {
    "bob@example.com": "[EMAIL]",
    "foo.bar+x@sub.domain.co.uk": "[EMAIL]",
    "4111 1111 1111 1111": "[CARD]",
    "3782-822463-10005": "[CARD]",
    "5555555555554444": "[CARD]",
    "sk-proj-" + "aB3_" * 12: "[SECRET]",
    "ghp_" + "a1B2" * 9: "[SECRET]",
    "AKIAIOSFODNN7EXAMPLE": "[SECRET]",
    "whsec_" + "ab+/" * 8: "[SECRET]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def": "[SECRET]",
    "sf_" + "a" * 43: "[SECRET]",
    KEY: "[SECRET]",
    KEY.replace("\n", "\\n"): "[SECRET]",
}
LEFT = (
    "on 2026-11-23 10:11",
    "a@b",
    "sk-short",
    "4111 1111 1111 1112",
    "1732352523123456789",
    "the line -----BEGIN PRIVATE KEY----- begins it",
    "task-" + "a" * 40,
)
HOSTILE = ("sk-", "eyJa-", "1 4444 ", "444 ", "a@", "a", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "@.")


@pytest.mark.parametrize(("text", "masked"), FOUND.items(), ids=[text[:20] for text in FOUND])
def test_secret_is_masked_without_changing_other_text(text: str, masked: str) -> None:
    assert mask(f"It is {text}, she said.", KINDS) == f"It is {masked}, she said."
    assert mask(text, KINDS) == masked


@pytest.mark.parametrize("text", LEFT)
def test_text_that_resembles_a_secret_is_not_masked(text: str) -> None:
    assert mask(text, KINDS) == text


def test_only_the_chosen_kinds_are_masked() -> None:
    text = "bob@example.com 4111 1111 1111 1111"
    assert mask(text, ["emails"]) == "[EMAIL] 4111 1111 1111 1111"
    assert mask(text, ["cards"]) == "bob@example.com [CARD]"
    assert mask(text, ["secrets"]) == text


@pytest.mark.parametrize("seed", range(8))
def test_masked_stream_is_independent_of_chunks(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's own
    parts = [
        *FOUND,
        *LEFT,
        "sk-",
        "-",
        "@",
        " ",
        "1",
        "1111",
        "eyJ",
        ".",
        "_",
        "x" * 30,
        "x" * 700,
        "ß",
        "\n",
    ]
    for _ in range(120):
        text = "".join(chance.choices(parts, k=chance.randint(1, 10)))
        kinds = chance.sample(KINDS, chance.randint(1, 3))
        masker, spans, at = TextMasker(kinds), [], 0
        while at < len(text):
            size = chance.choice([1, 2, 3, 7, 40, 600])
            spans += masker.feed(text[at : at + size])
            at = min(len(text), at + size)
            assert at - masker.decided <= HOLD
        spans += masker.end()
        assert apply(text, spans) == mask(text, kinds)


def test_only_a_possible_match_is_held_back() -> None:
    masker = TextMasker(KINDS)
    masker.feed("Hello there, ")
    assert masker.decided == len("Hello there, ")
    masker.feed("bob")
    assert masker.decided == len("Hello there, ")
    masker.feed(" went")
    assert masker.decided == len("Hello there, bob ")
    cards = TextMasker(["cards"])
    cards.feed("In the year 2026")
    assert cards.decided == len("In the year ")


def test_masking_above_the_time_limit_is_refused() -> None:
    spent = InputBudget(cpu_ms=Limit(0, "more than {} ms"))
    with pytest.raises(errors.InputTooLarge, match="more than 0 ms"):
        mask("a@" * 20_000, KINDS, spent)


def test_email_addresses_at_slice_boundaries_are_masked() -> None:
    assert mask("x" * 16_380 + " bob@example.com", KINDS) == "x" * 16_380 + " [EMAIL]"
    assert mask("a@b@c@example.com 4111 1111 1111 1111", KINDS) == "a@b@[EMAIL] [CARD]"


@pytest.mark.clock
@pytest.mark.parametrize("part", HOSTILE)
def test_masking_takes_linear_time(part: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        started = time.process_time()
        mask(text, KINDS)
        return time.process_time() - started

    # A quadratic search takes 64 times as long for eight times the text.
    assert seconds(400_000) < 24 * max(seconds(50_000), 0.002)
