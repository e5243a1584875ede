"""Searches in large bodies hold the GIL for a short time in each call, and find what crosses two slices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sixfold.api.gateway import provider_objects
from sixfold.api.gateway.openai.responses import references
from sixfold.core.catalog import inputs
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.gateway.guardrails import masking
from sixfold.core.gateway.requirements.maximum_usage import Contents
from sixfold.core.gateway.requirements.provider_tools import RequestTools
from sixfold.core.input_limits import byte_search
from sixfold.core.provenance import redaction
from tests import gil_time
from tests.harness.cases import nightly_after

MIB = 2**20
# A copy or a search for fixed text takes 20 to 60 ms, a pattern without a fixed beginning 250 to 1,000 ms.
LONGEST_MS = 90.0
BODY = b'{"a": "' + b'a"' * (16 * MIB - 8) + b'"}'
TEXTS = Descriptor("texts", "texts", required=True)
CALLS: dict[str, Callable[[], Any]] = {
    "guardrail": lambda: masking.may_mask(BODY),
    "objects": lambda: provider_objects.may_refer(BODY),
    "references": lambda: references.may_refer(BODY),
    "tools": lambda: RequestTools("chat", BODY, 1),
    "contents": lambda: Contents(BODY),
    "inputs": lambda: inputs.check((TEXTS,), {"texts": ["a" * 15_000] * 2048}),
    "manifest": lambda: redaction.clean({"texts": ["a" * 15_000] * 2048}),
}


@pytest.mark.parametrize("name", nightly_after(3, CALLS))
def test_a_search_in_32_mib_holds_the_gil_shortly_per_call(name: str) -> None:
    assert gil_time.longest_call(CALLS[name], LONGEST_MS) < LONGEST_MS


@pytest.mark.parametrize("shift", range(-10, 2))
def test_a_match_that_crosses_two_slices_is_found(shift: int) -> None:
    body = b"x" * (256 * 1024 + shift) + b'"modalities"' + b"x" * 100

    assert byte_search.has_match(re.compile(rb'"tools"|"modalities"'), body)
    assert not byte_search.has_match(re.compile(rb'"tools"|"audio"'), body)
