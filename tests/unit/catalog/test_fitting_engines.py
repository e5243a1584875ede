"""Engines receive only supported inputs under their own names, and integers may have choices."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog import models as catalog
from sixfold.core.catalog.engine_selection import EngineStatus, SelectionPolicy
from sixfold.core.catalog.models import Model


def model(name: str) -> Model:
    """Return a model of the bundled catalog."""
    prices = PriceTable(app_catalog.read_toml("prices.toml"))
    return catalog.build(app_catalog.models_document(), prices, {})[name]


def terms(*ready: str) -> SelectionPolicy:
    """Return the conditions under which these engines can run."""
    return SelectionPolicy(True, True, lambda name: EngineStatus(name in ready))


def test_engine_is_skipped_for_unsupported_inputs() -> None:
    upscaler = model("upscaler")
    both = terms("upscaler", "replicate-upscale")
    assert upscaler.choose({"face_enhance": True}, both)[0].name == "replicate-upscale"
    assert upscaler.choose({"face_enhance": False}, terms("upscaler"))[0].name == "upscaler"
    assert upscaler.choose({}, terms("upscaler"))[0].name == "upscaler"
    with pytest.raises(errors.EngineUnavailable) as excinfo:
        upscaler.choose({"face_enhance": True}, terms("upscaler"))
    assert "Set REPLICATE_API_TOKEN" in excinfo.value.message
    assert "weights-upscale" not in excinfo.value.message


def test_weights_are_selected_only_for_their_own_name() -> None:
    remover = model("bg-remover")
    ready = terms("weights-u2net", "matting")
    assert remover.choose({"model": "u2net"}, ready)[0].name == "weights-u2net"
    assert remover.choose({"model": "u2netp"}, ready)[0].name == "matting"


def test_engines_get_inputs_under_their_own_names() -> None:
    inputs = model("anime-image").check({"prompt": "x", "width": 519})
    response = model("anime-image").for_engine(inputs)
    assert (response["format"], response["steps"], response["guidance"], response["width"]) == (
        "webp",
        28,
        4,
        512,
    )
    assert not response.keys() & {"output_format", "num_inference_steps", "guidance_scale"}


@pytest.mark.parametrize(("value", "parsed"), [(2, 2), ("4", 4), (4.0, 4)])
def test_integer_with_choices_accepts_numbers_and_their_text(value: Any, parsed: int) -> None:
    assert model("upscaler").check({"image": "x", "scale": value})["scale"] == parsed


@pytest.mark.parametrize("value", [3, "3", "x", True, 4.5])
def test_integer_with_choices_refuses_other_values(value: Any) -> None:
    with pytest.raises(errors.InvalidInput):
        model("upscaler").check({"image": "x", "scale": value})


# Every input of the contract's table: its default, its minimum and maximum, or its choices.
CONTRACT: dict[str, dict[str, tuple[Any, ...]]] = {
    "anime-image": {
        "width": (832, 512, 1536), "height": (1216, 512, 1536), "num_inference_steps": (28, 10, 50),
        "guidance_scale": (4, 1, 8), "seed": (-1, -1, 2147483647),
        "output_format": ("webp", None, None, "webp", "png", "jpeg"),
    },
    "fast-image-space": {
        "width": (1024, 256, 2048), "height": (1024, 256, 2048), "num_inference_steps": (4, 1, 12),
        "seed": (0, 0, 2147483647), "randomize_seed": (True, None, None),
    },
    "fast-image-native": {
        "width": (1024, 256, 2048), "height": (1024, 256, 2048), "num_inference_steps": (4, 1, 12),
        "seed": (-1, -1, 2147483647), "output_format": ("webp", None, None, "webp", "png", "jpeg"),
    },
    "upscaler": {
        "scale": (4, None, None, "2", "4"), "model": ("general", None, None, "general", "anime"),
        "face_enhance": (False, None, None),
    },
    "depth-fx": {
        "effect": ("parallax", None, None, "parallax", "depth", "heatmap", "normals"),
        "strength": (0.55, 0.1, 1), "seconds": (3, 1, 6),
    },
    "inpaint-cleaner": {"grow": (8, 0, 64), "feather": (6, 0, 32)},
    "image-to-3d-voxel": {
        "style": ("voxel48", None, None, "mesh", "voxel32", "voxel48", "voxel64"),
        "foreground_ratio": (0.85, 0.5, 0.95), "mc_resolution": (256, None, None, "128", "192", "256"),
    },
    "image-to-3d-pbr": {
        "resolution": (1536, None, None, "1024", "1536"),
        "texture_size": (2048, None, None, "1024", "2048", "4096"),
        "decimation_target": (500000, 10000, 2000000), "remesh": (True, None, None),
    },
    "vectorizer": {
        "preset": ("poster", None, None, "poster", "logo", "photo", "pixel"),
        "speckle": (6, 0, 64), "color_precision": (6, 3, 8),
    },
    "video-fx": {"num_levels": (25, 2, 256), "output_codec": ("h264_hw", None, None, "h264_hw", "av1_hw")},
    "video-t2v": {
        "num_frames": (81, 17, 121), "steps": (27, 8, 50), "guidance": (4, 1, 10),
        "cache_accel": (True, None, None),
        "resolution": ("480x480", None, None, "480x480", "480x832", "832x480", "720x1280", "1280x720"),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_input_descriptors_equal_those_of_the_contract(name: str) -> None:
    known = {each.name: each for each in model(name).inputs}
    for inputs, (default, least, most, *choices) in CONTRACT[name].items():
        results = (known[inputs].default, known[inputs].min, known[inputs].max, *known[inputs].choices)
        assert results == (default, least, most, *choices), inputs
