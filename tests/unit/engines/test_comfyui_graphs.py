"""The family of a model file, the size to sample, and graphs that ComfyUI accepts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.clients.comfyui.server import ComfyStats
from sixfold.engines.providers.comfyui import capabilities
from sixfold.engines.providers.comfyui import image_graphs as graphs
from sixfold.engines.providers.comfyui.capabilities import CLASSES, CapabilityChoice, InstalledModels
from sixfold.engines.providers.comfyui.image_graphs import GraphBuilder, ImageSource, ImageSpec
from tests.architecture import source
from tests.fakes import comfyui_rules

SCHEMAS = sorted((source.ROOT.parent / "shared/data/workflows").glob("object_info_comfyui_*.json"))
STATS = ComfyStats("0.8.0", "GPU", 0, 0)
SPEC = ImageSpec("a lake", "people", 1360, 768, 2**31 - 1, 2)
FILES = {
    ("CheckpointLoaderSimple", "ckpt_name"): ["sd_xl_base_1.0.safetensors", "v1-5-pruned-emaonly.ckpt"],
    ("UNETLoader", "unet_name"): [
        "z_image_turbo_bf16.safetensors",
        "qwen_image_fp8_e4m3fn.safetensors",
        "flux1-dev.safetensors",
    ],
    ("CLIPLoader", "clip_name"): ["qwen_3_4b.safetensors", "qwen_2.5_vl_7b_fp8_scaled.safetensors"],
    ("DualCLIPLoader", "clip_name1"): ["t5xxl_fp16.safetensors", "clip_l.safetensors"],
    ("DualCLIPLoader", "clip_name2"): ["t5xxl_fp16.safetensors", "clip_l.safetensors"],
    ("VAELoader", "vae_name"): ["ae.safetensors", "qwen_image_vae.safetensors"],
    ("UpscaleModelLoader", "model_name"): ["RealESRGAN_x4plus.safetensors"],
}


@pytest.mark.parametrize(
    ("file", "family", "steps"),
    [
        ("sd_xl_base_1.0.safetensors", "SDXL", 28),
        ("SDXL/juggernautXL_v9Rundiffusionphoto2.safetensors", "SDXL", 28),
        ("ponyDiffusionV6XL.safetensors", "SDXL", 28),
        ("Illustrious-XL-v2.0.safetensors", "SDXL", 28),
        ("sd_xl_turbo_1.0_fp16.safetensors", "SDXL Turbo", 4),
        ("sdxl_lightning_4step.safetensors", "SDXL, few steps", 4),
        ("dreamshaperXL_lightningDPMSDE.safetensors", "SDXL, few steps", 6),
        ("dreamshaperXL_v21TurboDPMSDE.safetensors", "SDXL, merged with Turbo", 8),
        ("sd_turbo.safetensors", "SD Turbo", 4),
        ("v1-5-pruned-emaonly.ckpt", "SD 1.5", 25),
        (r"sd15\dreamshaper_8.safetensors", "SD 1.5", 25),
        ("realisticVisionV60B1_v51VAE.safetensors", "SD 1.5", 25),
        ("LCM_Dreamshaper_v7.safetensors", "LCM", 8),
        ("v2-1_768-ema-pruned.safetensors", "SD 2 at 768", 28),
        ("512-base-ema.ckpt", "SD 2", 28),
        ("sd3.5_large_fp8_scaled.safetensors", "SD 3", 28),
        ("sd3.5_large_turbo.safetensors", "SD 3.5 turbo", 4),
        ("sd3_medium_incl_clips_t5xxlfp8.safetensors", "SD 3", 28),
        ("flux1-schnell-fp8.safetensors", "FLUX.1 schnell", 4),
        ("flux1-dev-fp8.safetensors", "FLUX.1 dev", 20),
        ("flux1-krea-dev_fp8_scaled.safetensors", "FLUX.1 dev", 20),
        ("z_image_turbo_bf16.safetensors", "Z-Image Turbo", 8),
        ("z_image_bf16.safetensors", "Z-Image", 25),
        ("qwen_image_fp8_e4m3fn.safetensors", "Qwen-Image", 20),
        ("mysteryMix_v3.safetensors", "unknown", 25),
    ],
)
def test_model_family_is_detected_by_file_name(file: str, family: str, steps: int) -> None:
    result = capabilities.family_of(file)
    assert result is not None
    assert (result.name, result.steps) == (family, steps)


@pytest.mark.parametrize(
    "file",
    [
        "svd_xt.safetensors",
        "sd_xl_refiner_1.0.safetensors",
        "512-inpainting-ema.safetensors",
        "ltx-video-2b-v0.9.5.safetensors",
        "wan2.1_t2v_1.3B_fp16.safetensors",
        "hunyuan3d-dit-v2-mini.safetensors",
        "ace_step_v1_3.5b.safetensors",
        "flux1-fill-dev.safetensors",
        "flux1-dev-kontext_fp8_scaled.safetensors",
        "qwen_image_edit_2509_fp8_e4m3fn.safetensors",
        "stable_cascade_stage_c.safetensors",
    ],
)
def test_other_models_have_no_family(file: str) -> None:
    assert capabilities.family_of(file) is None


def test_file_with_unknown_name_is_identified_by_metadata() -> None:
    result = capabilities.family_of("mysteryMix_v3.safetensors", "stable-diffusion-xl-v1-base")
    assert result is not None
    assert result.name == "SDXL"


@pytest.mark.parametrize("width", [64, 512, 1024, 1360, 2048])
@pytest.mark.parametrize("height", [64, 768, 1024, 2048])
def test_sampled_size_is_near_that_of_the_model(width: int, height: int) -> None:
    for family in capabilities.families():
        across, down = graphs.work_size(width, height, family)
        assert across % family.multiple == down % family.multiple == 0
        assert 0.6 < across * down / family.side**2 < 1.7
        request = min(max(width / height, 1 / 3), 3)
        assert across / down == pytest.approx(request, rel=0.08)


def test_supported_size_is_sampled_unchanged() -> None:
    family = next(family for family in capabilities.families() if family.name == "SDXL")
    for size in ((1024, 1024), (1152, 768), (768, 1360), (864, 1152)):
        assert graphs.work_size(*size, family) == size


# -- graphs and ComfyUI's own schemas ------------------------------------------------------------


def real(path: Path) -> dict[str, Any]:
    """Return a real server's schemas with our model files."""
    schemas = json.loads(path.read_text("utf-8"))
    for (class_type, name), files in FILES.items():
        spec = schemas[class_type]["input"]["required"][name]
        if isinstance(spec[0], list):
            spec[0] = files
        else:
            spec[1]["options"] = files
    return schemas


def stocked(schemas: dict[str, Any], file: str = "") -> InstalledModels:
    remaining = {name: schemas[name] for name in CLASSES if name in schemas}
    choices = [
        CapabilityChoice(name, family)
        for name in capabilities.options(remaining, "CheckpointLoaderSimple", "ckpt_name")
        if (family := capabilities.family_of(name))
    ]
    split, problem = capabilities._split_models(remaining)
    assert problem == ""
    stock = InstalledModels(
        STATS, remaining, (*split, *choices), FILES["UpscaleModelLoader", "model_name"][0]
    )
    return stock.pinned(file) if file else stock


def accept(plan: GraphBuilder, schemas: dict[str, Any]) -> comfyui_rules.Verdict:
    return comfyui_rules.validate(plan.nodes, schemas, lambda name: name == "a.png [temp]")


@pytest.mark.skipif(not SCHEMAS, reason="ComfyUI's own schemas are not beside this checkout")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "file", [*FILES["CheckpointLoaderSimple", "ckpt_name"], *FILES["UNETLoader", "unet_name"]]
)
def test_every_graph_fits_the_schemas_of_a_real_server(path: Path, file: str) -> None:
    schemas = real(path)
    stock = stocked(schemas, file)
    plans = (
        graphs.text_to_image(stock, SPEC),
        graphs.text_to_image(stock, SPEC, alone=1),
        graphs.text_to_image(stock, ImageSpec("x", "", 2048, 2048, 0)),
        graphs.image_to_image(stock, SPEC, ImageSource("a.png [temp]", alpha=True), 0.6),
        graphs.image_to_image(stock, SPEC, ImageSource("a.png [temp]"), 0.6, alone=1),
        graphs.fill(stock, SPEC, ImageSource("a.png [temp]"), "a.png [temp]"),
        graphs.upscale(stock, ImageSource("a.png [temp]"), 1000, 700),
    )
    for plan in plans:
        verdict = accept(plan, schemas)
        assert verdict.error is None
        assert verdict.nodes == {}
        assert verdict.outputs == (plan.output,)


@pytest.mark.skipif(not SCHEMAS, reason="ComfyUI's own schemas are not beside this checkout")
def test_check_against_real_schemas_detects_errors() -> None:
    schemas = real(SCHEMAS[0])
    plan = graphs.text_to_image(stocked(schemas, "v1-5-pruned-emaonly.ckpt"), SPEC)
    for changes in ({"steps": 0}, {"sampler_name": "none"}, {"model": ["1", 1]}):
        broken = copy.deepcopy(plan.nodes)
        broken[plan.sampler]["inputs"].update(changes)
        assert comfyui_rules.validate(broken, schemas, lambda _: True).error is not None


@pytest.mark.skipif(not SCHEMAS, reason="ComfyUI's own schemas are not beside this checkout")
def test_samplers_of_the_table_exist_in_comfyui() -> None:
    schemas = real(SCHEMAS[-1])
    for family in capabilities.families():
        assert family.sampler in capabilities.options(schemas, "KSampler", "sampler_name")
        assert family.scheduler in capabilities.options(schemas, "KSampler", "scheduler")
        assert family.latent in schemas
        if family.parts:
            loader = "DualCLIPLoader" if len(family.parts.clips) > 1 else "CLIPLoader"
            assert family.parts.type in capabilities.options(schemas, loader, "type")
