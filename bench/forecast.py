"""Measure forecasts beside statsforecast's: sMAPE, interval coverage and time.

PEERS=FOLDER .venv/bin/python -m bench forecast    FOLDER: a virtual environment with statsforecast

The series are the air passengers of 1949 to 1960, as contained in statsforecast, at four origins, and
generated series of six kinds. The last twelve values of each are held out for evaluation.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.reporting import Row, of_samples
from sixfold.core.catalog.engines import Task
from sixfold.engines.forecast.engine import ForecastEngine

Values = NDArray[np.float64]

TITLE = "Forecasts"
KINDS = ("level", "trend", "season", "growing season", "walk", "damped")
EACH = 8
LEVELS = [80, 95]
_PEER = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from statsforecast.models import AutoARIMA, AutoCES, AutoETS, AutoTheta, SeasonalNaive
from statsforecast.utils import AirPassengers
import numpy as np, time
if sys.argv[1] == "passengers":
    print(json.dumps([float(value) for value in AirPassengers])); sys.exit()
jobs = json.load(sys.stdin)
out = []
for job in jobs:
    y, results = np.array(job["y"]), {}
    for model in (AutoETS, AutoTheta, AutoCES, AutoARIMA, SeasonalNaive):
        began = time.perf_counter()
        found = model(season_length=job["season"]).forecast(y, job["horizon"], level=[80, 95])
        results[model.__name__] = {
            "mean": list(map(float, found["mean"])), "seconds": time.perf_counter() - began,
            **{str(level): [list(map(float, found[f"{side}-{level}"])) for side in ("lo", "hi")]
               for level in (80, 95)},
        }
    out.append(results)
print(json.dumps(out))
"""


@dataclass(frozen=True)
class Job:
    """A series, split at the start of the forecast."""

    kind: str
    known: Values
    truth: Values
    season: int


class Quiet:
    """Run context that ignores progress and logs."""

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""

    @property
    def scratch(self) -> Path:
        return Path()


def generate(kind: str, seed: int, count: int = 120, horizon: int = 12) -> Job:
    rng = np.random.default_rng([KINDS.index(kind), seed])
    at = np.arange(count + horizon)
    phases = rng.normal(0, 1, 12)
    noise = rng.normal(0, 1, at.size)
    wave = np.resize(phases - phases.mean(), at.size)
    values = {
        "level": 100 + 4 * noise,
        "trend": 50 + rng.uniform(0.2, 1) * at + 4 * noise,
        "season": 100 + 12 * wave + 3 * noise,
        "growing season": 20 * np.exp(0.012 * at) * np.exp(0.15 * wave + 0.03 * noise),
        "walk": 100 + np.cumsum(2 * noise),
        "damped": 100 + 60 * (1 - 0.97**at) + 6 * wave + 3 * noise,
    }[kind]
    return Job(kind, values[:count], values[count:], 12)


def jobs(passengers: list[float]) -> Iterator[Job]:
    """Yield every series of the benchmark."""
    if passengers:
        whole = np.array(passengers)
        for end in (96, 108, 120, 132):
            yield Job("air passengers", whole[:end], whole[end : end + 12], 12)
    for kind in KINDS:
        for seed in range(EACH):
            yield generate(kind, seed)


def sixfold_forecast(job: Job) -> dict[str, Any]:
    """Return Sixfold's forecast in the format of `run_peer`."""
    began = time.perf_counter()
    inputs = {"series": job.known.tolist(), "horizon": job.truth.size, "levels": LEVELS}
    data = ForecastEngine().run(Task("bench", "forecast", inputs), Quiet()).data
    result: dict[str, Any] = {"mean": data["mean"], "seconds": time.perf_counter() - began}
    for level in LEVELS:
        result[str(level)] = [data["intervals"][str(level)][side] for side in ("lower", "upper")]
    return result


def run_peer(python: str, *arguments: str, inputs: Any = None) -> Any:
    """Run statsforecast and return its output."""
    done = subprocess.run(
        [python, "-c", _PEER, *arguments],
        input=json.dumps(inputs),
        text=True,
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def smape(found: dict[str, Any], truth: Values) -> float:
    """Return the symmetric mean absolute percentage error."""
    mean = np.array(found["mean"])
    return float(200 * np.mean(np.abs(mean - truth) / (np.abs(mean) + np.abs(truth))))


def interval_coverage(found: dict[str, Any], truth: Values, level: int) -> float:
    """Return the share of the true values within an interval."""
    low, high = map(np.array, found[str(level)])
    return float(np.mean((truth >= low) & (truth <= high)))


def rows() -> list[Row]:
    """Measure Sixfold, and statsforecast if `PEERS` names a virtual environment that contains it."""
    place = os.environ.get("PEERS", "")
    python = f"{place}/bin/python" if place else ""
    expected = list(jobs(run_peer(python, "passengers") if python else []))
    answers = [{"sixfold": sixfold_forecast(job)} for job in expected]
    if python:
        inputs = [
            {"y": job.known.tolist(), "season": job.season, "horizon": job.truth.size} for job in expected
        ]
        answers = [
            mine | theirs
            for mine, theirs in zip(answers, run_peer(python, "run", inputs=inputs), strict=True)
        ]
    messages = [(answer, job.truth) for answer, job in zip(answers, expected, strict=True)]
    kinds = [job.kind for job in expected]
    results: list[Row] = []
    for name in answers[0]:
        for kind in dict.fromkeys(kinds):
            errors = [
                smape(one[name], truth)
                for (one, truth), of in zip(messages, kinds, strict=True)
                if of == kind
            ]
            results.append(
                Row(f"{name}, {kind}", float(np.mean(errors)), "% sMAPE", note=f"{len(errors)} series")
            )
        results.append(
            Row(f"{name}, all", float(np.mean([smape(one[name], at) for one, at in messages])), "% sMAPE")
        )
        for level in LEVELS:
            share = 100 * float(
                np.mean([interval_coverage(one[name], truth, level) for one, truth in messages])
            )
            results.append(Row(f"{name}, truth within {level} %", share, "%"))
        results.append(
            of_samples(f"{name}, time of one", [one[name]["seconds"] for one, _ in messages], "ms")
        )
    return results
