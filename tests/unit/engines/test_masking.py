"""Masks that clients draw over images."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.workflow_nodes.mask_upload import apply_mask


def test_large_image_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    Image.new("1", (8_000, 8_000)).save(large)
    tracemalloc.start()
    try:
        with pytest.raises(UnusableInput, match=r"at most 40,000,000 pixels \(got 8000×8000\)"):
            apply_mask(large, large, tmp_path / "result.png")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "result.png").exists()
