"""Prompts to 3D models: names, counts and colors of objects, and closed bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.engines.three_d import glb, primitives, prompt_parser
from sixfold.engines.three_d.engine import TextTo3DEngine
from tests.unit.engines import engine_runs
from tests.unit.engines.three_d import meshes


def build(folder: Path, prompt: str, seed: int = 1) -> tuple[bytes, list[str]]:
    """Return a GLB and its objects."""
    artifact, result, _ = engine_runs.run(TextTo3DEngine(), folder, {"prompt": prompt, "seed": seed})
    assert result.quality == "preview"
    return artifact.data, result.data["things"]


def paints(data: bytes) -> set[tuple[float, ...]]:
    """Return the base colors of a GLB."""
    rows = meshes.read_glb(data)["materials"]
    return {tuple(row["pbrMetallicRoughness"]["baseColorFactor"][:3]) for row in rows}


def paint(name: str) -> tuple[float, ...]:
    """Return a paint's color in the format of a GLB."""
    return tuple(round(glb._linear(part), 6) for part in prompt_parser.material(name).color[:3])


@pytest.mark.parametrize("name", sorted(prompt_parser._table()["objects"]))
def test_every_object_is_on_the_ground_and_closed(name: str) -> None:
    row = prompt_parser._table()["objects"][name]
    data = glb.encode(prompt_parser.build(prompt_parser.parse(row["words"][0]).objects, 1), name)
    mesh = meshes.surface(data)
    assert mesh.is_watertight
    assert mesh.volume > 0
    assert mesh.bounds[0][1] == pytest.approx(0, abs=1e-6)
    assert np.abs(mesh.bounds[0][[0, 2]] + mesh.bounds[1][[0, 2]]).max() < 1e-5


def test_colors_and_sizes_apply_to_the_following_noun(tmp_path: Path) -> None:
    named = prompt_parser.parse("a tiny blue chair, a golden table and a tall lamp of glass").objects
    assert [(thing.name, thing.paint) for thing in named] == [
        ("chair", "blue"),
        ("table", "gold"),
        ("lamp", "glass"),
    ]
    assert named[0].stretch[0] < 1 < named[2].stretch[1]
    data, things = build(tmp_path, "a tiny blue chair and a golden table")
    assert things == ["chair", "table"]
    assert {paint("blue"), paint("gold")} <= paints(data)


@pytest.mark.parametrize(
    ("prompt", "drawn", "ignored"),
    [
        ("a snowman with a red scarf", [("snowman", None)], ["red", "scarf"]),
        ("a chair with a tall blue cushion beside a table", [("chair", None), ("table", None)], None),
        ("a blue kitchen chair", [("chair", "blue")], ["kitchen"]),
        ("a chair of gold", [("chair", "gold")], []),
        ("a green qwxz on a hill", [("", "green")], ["qwxz", "hill"]),
    ],
)
def test_color_of_a_thing_that_is_not_drawn_colors_nothing_else(
    prompt: str, drawn: list[tuple[str, str | None]], ignored: list[str] | None
) -> None:
    parsed = prompt_parser.parse(prompt)
    assert [(thing.name, thing.paint) for thing in parsed.objects] == drawn
    assert all(thing.stretch == (1, 1, 1) for thing in parsed.objects)
    assert ignored is None or list(parsed.words.ignored) == ignored


def test_unknown_word_gives_a_form_by_seed_in_its_colors(tmp_path: Path) -> None:
    single, things = build(tmp_path, "a green qwxz")
    other, _ = build(tmp_path, "a green qwxz", seed=2)
    assert things == ["study"]
    assert paint("green") in paints(single)
    assert single != other
    assert single == build(tmp_path, "a green qwxz")[0]
    assert meshes.surface(single).is_watertight


SHAPES: list[Any] = [
    (primitives.box((1, 2, 3), 0.001), 6.0),
    (primitives.ball((1, 1, 1)), np.pi / 6),
    (primitives.revolve([(1, 0), (0.001, 3)]), np.pi),
    (primitives.ring(1, 0.2), 2 * np.pi**2 * 0.04),
]


@pytest.mark.parametrize(("body", "volume"), SHAPES)
def test_bodies_have_their_geometric_volume(body: primitives.PrimitiveBody, volume: float) -> None:
    for turned in (body, body.transform(np.diag([-1.0, 1, 1]), np.zeros(3))):
        corners = turned.positions[turned.faces]
        mesh_volume = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
        assert mesh_volume == pytest.approx(volume, rel=0.05)
        assert np.allclose(np.linalg.norm(turned.normals, axis=1), 1, atol=1e-6)
