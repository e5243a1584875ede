"""Measure `remember` and `answer` with a real model on a conversation of LoCoMo.

SIXFOLD_API_KEY=… .venv/bin/python -m bench.remember --conversation 42 --questions 100 [--url URL]

The calls of the server's model are charged. Questions of category 5 are about events that never happened.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from bench import quality

_SECONDS = 600
_NEVER = 5
_WORD = re.compile(r"\w+")
_ARTICLES = {"a", "an", "the", "and"}


@dataclass
class Measured:
    """Counts of one run; costs in USD."""

    added: int = 0
    superseded: int = 0
    dropped: int = 0
    writing: Decimal = Decimal(0)
    asking: Decimal = Decimal(0)
    scores: list[float] = field(default_factory=list[float])
    answered: list[bool] = field(default_factory=list[bool])
    withheld: list[bool] = field(default_factory=list[bool])

    def row(self) -> str:
        """Return the figures as a row of a table."""
        return (
            f"| {self.added} | {self.superseded} | {self.dropped} | {self.writing} | {self.asking} "
            f"| {_mean(self.scores)} | {_mean(self.answered)} | {_mean(self.withheld)} |"
        )


HEAD = (
    "| added | superseded | dropped | USD to remember | USD to answer | F1 | answered | withheld |\n"
    "|---|---|---|---|---|---|---|---|"
)


def sessions(talk: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, date and text of each session of a conversation."""
    number = 1
    while f"session_{number}" in talk:
        written = talk[f"session_{number}_date_time"].partition(" on ")[2]
        date = datetime.strptime(written, "%d %B, %Y").replace(tzinfo=UTC)
        lines = (f"{turn['speaker']}: {turn['text']}" for turn in talk[f"session_{number}"])
        yield f"session {number}", date.strftime("%Y-%m-%d"), "\n".join(lines)
        number += 1


def f1(answer: str, right: str) -> float:
    """Return the F1 score of the words of two texts."""
    text, expected = (
        Counter(w for w in _WORD.findall(t.lower()) if w not in _ARTICLES) for t in (answer, right)
    )
    shared = (text & expected).total()
    return 2 * shared / (text.total() + expected.total()) if shared else 0.0


def measure(client: httpx.Client, row: dict[str, Any], questions: int) -> Measured:
    result = Measured()
    for name, date, text in sessions(row["conversation"]):
        body = {"text": text, "source": name, "date": date, "folder": f"locomo/{row['sample_id']}"}
        document = _post(client, "remember", body)
        result.added += len(document["added"])
        result.superseded += len(document["superseded"])
        result.dropped += len(document["dropped"])
        result.writing += Decimal(document["cost_usd"])
    for request in row["qa"][:questions]:
        document = _post(client, "answer", {"question": request["question"]})
        result.asking += Decimal(document["cost_usd"])
        if request["category"] == _NEVER:
            result.withheld.append(not document["known"])
        else:
            result.answered.append(document["known"])
            result.scores.append(f1(document["text"], str(request["answer"])) if document["known"] else 0.0)
    return result


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(f"/api/{path}", json=body)
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code} {answer.text}")
    return answer.json()


def _mean(values: list[float] | list[bool]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.remember", description="Measure remember and answer.")
    parser.add_argument("--url", default="http://127.0.0.1:8600")
    parser.add_argument("--conversation", default="42")
    parser.add_argument("--questions", type=int, default=100)
    options = parser.parse_args()
    path: Path | None = quality.locomo_file()
    if path is None:
        raise SystemExit("shared/data/locomo/locomo_dev.json is missing beside the checkout")
    rows = {row["sample_id"].removeprefix("conv-"): row for row in json.loads(path.read_text("utf-8"))}
    headers = {"Authorization": f"Bearer {os.environ['SIXFOLD_API_KEY']}"}
    with httpx.Client(base_url=options.url, headers=headers, timeout=_SECONDS) as client:
        print(HEAD, measure(client, rows[options.conversation], options.questions).row(), sep="\n")


if __name__ == "__main__":
    main()
