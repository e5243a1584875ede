"""Device and resolution of a pipeline: decisions that need no device to be tested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("diffusers", reason="the extra `weights` is not installed (make weights)")

import torch

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import placement
from sixfold.engines.image.diffusers.options import DiffusersOptions
from sixfold.engines.image.diffusers.placement import Device
from sixfold.engines.image.diffusers.profiles import ModelProfile

pytestmark = pytest.mark.weights

GIB = 2**30
SDXL = {"unet": 5 * GIB, "text_encoder_2": int(1.3 * GIB), "text_encoder": GIB // 4, "vae": GIB // 6}


@pytest.mark.parametrize(
    ("free_gib", "way"),
    [(24, "none"), (9, "none"), (8, "model"), (7.1, "model"), (6, "sequential"), (1, "sequential")],
)
def test_free_memory_selects_the_offload_mode(free_gib: float, way: str) -> None:
    card = Device("cuda", torch.bfloat16)
    assert placement.offload(SDXL, card, int(free_gib * GIB), "auto") == way


def test_configured_offload_mode_overrides_free_memory() -> None:
    card = Device("cuda", torch.bfloat16)
    assert placement.offload(SDXL, card, 0, "none") == "none"
    assert placement.offload(SDXL, card, 80 * GIB, "sequential") == "sequential"


def test_cpu_has_no_offload_mode() -> None:
    here = Device("cpu", torch.float32)
    assert placement.offload(SDXL, here, 7 * GIB, "model") == "none"
    with pytest.raises(EngineError, match=r"need 6.7 GiB of memory, but only 3.0 GiB are free"):
        placement.offload(SDXL, here, 3 * GIB, "auto")


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"amx_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
    ids=["amx", "avx2", "other"],
)
def test_dtype_on_a_cpu_is_the_fastest_one(
    capabilities: dict[str, bool], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert placement.device(DiffusersOptions(device="cpu")).dtype is dtype
    assert placement.device(DiffusersOptions(device="cpu", dtype="float32")).dtype is torch.float32


def test_missing_device_is_named_in_the_error() -> None:
    missing = next(
        name
        for name, there in (("mps", torch.backends.mps.is_available()), ("cuda", torch.cuda.is_available()))
        if not there
    )
    with pytest.raises(EngineError, match=f"torch did not find a {missing} device"):
        placement.device(DiffusersOptions(device=missing))


sides = st.integers(64, 4096)


@given(sides, sides, st.sampled_from([8, 16]), st.sampled_from([512, 1024]))
def test_sampled_size_is_a_multiple_near_the_model_area(
    width: int, height: int, multiple: int, native: int
) -> None:
    profile = ModelProfile(multiple=multiple, native=native, area=(0.25, 2.0))
    result = profile.side_in(width, height)
    assert all(side % multiple == 0 and side > 0 for side in result)
    least, most = 0.25 * native**2, 2.0 * native**2
    # Within these limits, images are not enlarged, and at most a strip is cropped.
    if least <= width * height <= most:
        assert 0 <= result[0] - width < multiple
        assert 0 <= result[1] - height < multiple
    else:
        pixels = (result[0] - multiple) * (result[1] - multiple)
        assert pixels <= most
        assert result[0] * result[1] >= min(least, 4096 * multiple)
