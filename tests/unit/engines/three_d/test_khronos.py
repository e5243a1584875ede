"""The Khronos glTF validator reports no errors or warnings for our GLB files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.provenance import embed
from sixfold.engines.three_d.engine import ReliefEngine, TextTo3DEngine, VoxelEngine
from tests.harness import nodejs, processes
from tests.unit.engines import engine_runs
from tests.unit.engines.three_d.test_image_to_3d import SMALL, figure

VALIDATOR = "gltf-validator@2.0.0-dev.3.10"
PROGRAM = """
const fs = require("fs"), validator = require("gltf-validator");
validator.validateBytes(new Uint8Array(fs.readFileSync(process.argv[2])))
  .then(report => console.log(JSON.stringify(report)));
"""
PLANS: list[tuple[type, dict[str, Any]]] = [
    (VoxelEngine, {"style": "voxel32"}),
    (VoxelEngine, {"style": "mesh", "mc_resolution": 64}),
    (ReliefEngine, {**SMALL, "seed": 1}),
    (TextTo3DEngine, {"prompt": "two red chairs, a golden table and a tall lamp of glass", "seed": 1}),
]

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return Node.js and a program that prints the validator's report on a file."""
    folder = tmp_path_factory.mktemp("khronos")
    node = nodejs.installed(folder, VALIDATOR)
    (folder / "report.js").write_text(PROGRAM)
    return node, folder / "report.js"


@pytest.mark.parametrize(("engine", "inputs"), PLANS, ids=["voxels", "mesh", "relief", "words"])
def test_khronos_validator_reports_no_errors(
    validator: tuple[Path, Path], tmp_path: Path, engine: type, inputs: dict[str, Any]
) -> None:
    files = {} if engine is TextTo3DEngine else {"image": engine_runs.saved(tmp_path / "in.png", figure())}
    artifact, _, _ = engine_runs.run(engine(), tmp_path, inputs, **files)
    for name, data in (
        ("bare", artifact.data),
        ("signed", embed.embed(artifact.data, "model/gltf-binary", '{"model":"x"}')),
    ):
        path = tmp_path / f"{name}.glb"
        path.write_bytes(data)
        process = processes.run([*validator, path])
        assert process.returncode == 0, process.stderr
        result = json.loads(process.stdout)["issues"]
        assert (result["numErrors"], result["numWarnings"]) == (0, 0), result["messages"]
