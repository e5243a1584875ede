"""Composition by a user's policy: key, bars and tempo stay as requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.audio.music import theory
from sixfold.engines.audio.piano import policy
from sixfold.engines.image.scene import noise
from tests.unit.engines.audio.measuring import Recorder
from tests.unit.engines.onnx_model import _field, _tensor

USUAL = {"model": "open-piano-jazz", "sound": "felt", "bars": 2, "tempo": 120, "key": "D", "seed": 3}
TOKENS = 89


def write(path: Path, width: int = TOKENS) -> Path:
    """Write a policy with a table of transitions; after a rest, it prefers the middle of the keyboard."""
    table = [_likes(token, after) for token in range(TOKENS) for after in range(width)]
    node = b"".join(_field(1, name) for name in ("table", "tokens")) + _field(2, "y") + _field(4, "Gather")
    graph = _field(1, node) + _field(2, "tiny") + _field(5, _tensor("table", (TOKENS, width), tuple(table)))
    graph += _field(11, _shaped("tokens", 7, (1, "n"))) + _field(12, _shaped("y", 1, (1, "n", width)))
    path.write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13)))
    return path


def _likes(token: int, after: int) -> float:
    if token == 0:
        return 8.0 if 40 <= after <= 64 else 4.0 * (after == 0)
    return 12.0 * (after == 0)


def _shaped(name: str, kind: int, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(_field(1, _field(1 if isinstance(side, int) else 2, side)) for side in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims)))


def task(path: Path, **changes: Any) -> Task:
    return Task("pred_1", "piano", {**USUAL, **changes}, {"policy_url": path})


def folders(folder: Path) -> list[Path]:
    results = [folder / name for name in ("first", "second")]
    for result in results:
        result.mkdir()
    return results


def test_policy_composes_within_key_and_bars(tmp_path: Path) -> None:
    loaded = policy._Policy(write(tmp_path / "a.onnx"))
    home = theory.key("D")
    notes = policy.compose(loaded, home, 2, noise.stream(3, "policy"), Recorder(tmp_path))
    assert len(notes) > 10
    assert {note.pitch % 12 for note in notes} <= set(home.scale)
    liked = [note for note in notes if 40 <= note.pitch - 20 <= 64]
    assert len(liked) > 0.9 * len(notes)
    assert max(note.beat + note.beats for note in notes) <= 8
    assert max(sum(other.beat == note.beat for other in notes) for note in notes) <= 4


def test_policy_gives_audible_and_repeatable_music(tmp_path: Path) -> None:
    path = write(tmp_path / "a.onnx")
    results = [policy.PolicyEngine().run(task(path), Recorder(folder)) for folder in folders(tmp_path)]
    first, second = (result.artifacts[0].path for result in results)
    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()
    sound = files.read(first, 60)
    assert sound.shape[1] / files.RATE == pytest.approx(4.0, abs=0.03)
    assert abs(sound).max() > 0.1


@pytest.mark.parametrize("kind", ["noise", "narrow", "empty"])
def test_invalid_policy_is_an_input_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.onnx"
    match kind:
        case "narrow":
            write(path, width=12)
        case "empty":
            path.write_bytes(b"")
        case _:
            path.write_bytes(b"no model at all" * 300)
    with pytest.raises(UnusableInput, match="policy_url"):
        policy.PolicyEngine().run(task(path), Recorder(tmp_path))
