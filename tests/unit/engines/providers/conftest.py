"""Fake providers on loopback, the services of the server, and a recording context."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sixfold.drivers.remote import ServerServices
from tests.fakes import fal as fal_fakes
from tests.fakes import openai as openai_fakes
from tests.fakes import replicate as replicate_fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import Record


@pytest.fixture
async def fal() -> AsyncGenerator[fal_fakes.Fal]:
    async with fal_fakes.running() as fake:
        yield fake


@pytest.fixture
async def replicate() -> AsyncGenerator[replicate_fakes.Replicate]:
    async with replicate_fakes.running() as fake:
        yield fake


@pytest.fixture
async def openai() -> AsyncGenerator[openai_fakes.OpenAI]:
    async with openai_fakes.running() as fake:
        yield fake


@pytest.fixture
async def outside() -> AsyncGenerator[ServerServices]:
    async with parts.server_services() as ways:
        yield ways


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)
