"""Measure how an agent finds an answer in the memory, with `search` and `read` or with `context`.

.venv/bin/python -m bench recall

With `search` and `read`, the agent reads the results in order until it has read a page that answers the
question, three at most. A client of the API with the header `X-Sixfold-Memory`, and an agent with the hook
`sixfold memory hook`, get the same excerpts as from `context` without a call of a tool.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import quality, retrieval
from bench.quality import Case, Corpus
from bench.reporting import Row
from sixfold.core.memory.search.context import tokens_of
from tests.api.app_fixture import running_app
from tests.mcp.agent import Agent

TITLE = "Answers for an agent: tool calls and tokens"
_READS = 3
_BUDGETS = (500, 1000, 2000)


@dataclass
class Found:
    """The calls and tokens of each question, and whether a page that answers it was found."""

    calls: list[int] = field(default_factory=list[int])
    tokens: list[int] = field(default_factory=list[int])
    found: list[bool] = field(default_factory=list[bool])

    def add(self, texts: Sequence[str], *, found: bool) -> None:
        """Add a question with the results of its calls."""
        self.calls.append(len(texts))
        self.tokens.append(sum(tokens_of(text) for text in texts))
        self.found.append(found)

    def row(self, name: str) -> Row:
        """Return the mean tokens, with the calls and the share of answers in the note."""
        count = len(self.found)
        share = 100 * sum(self.found) / count
        note = f"{sum(self.calls) / count:.1f} calls; {share:.1f} % of {count} answers found"
        return Row(name, sum(self.tokens) / count, "tokens", note=note)


async def _call(agent: Agent, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the text of a result, which a model reads, and its values."""
    result = await agent.result("tools/call", {"name": tool, "arguments": arguments})
    return "".join(part["text"] for part in result["content"]), result["structuredContent"]


async def _search_and_read(agent: Agent, case: Case) -> tuple[list[str], bool]:
    text, values = await _call(agent, "search", query=case.question)
    texts = [text]
    for row in values["results"][:_READS]:
        texts.append((await _call(agent, "read", slug=row["slug"]))[0])
        if row["slug"] in case.answers:
            return texts, True
    return texts, False


async def _measure(corpus: Corpus) -> list[Row]:
    before, after = Found(), {budget: Found() for budget in _BUDGETS}
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder), requests_per_second_per_account=0) as server:
            agent = Agent(server, await retrieval.write(server, corpus))
            for case in corpus.cases:
                texts, found = await _search_and_read(agent, case)
                before.add(texts, found=found)
                for budget, each in after.items():
                    text, values = await _call(agent, "context", query=case.question, tokens=budget)
                    slugs = {source["slug"] for source in values["sources"]}
                    each.add([text], found=not slugs.isdisjoint(case.answers))
    results = [before.row(f"{corpus.name}: search, then read up to {_READS} pages")]
    return results + [each.row(f"{corpus.name}: context, {budget}") for budget, each in after.items()]


def rows() -> list[Row]:
    """Return the rows for the project's own corpora."""
    return [row for (corpus,) in (quality.own(), quality.islands()) for row in asyncio.run(_measure(corpus))]
