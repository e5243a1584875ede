"""Tiny video pipelines with random weights, saved in the format of the Hub."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportPrivateImportUsage=false

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKLLTXVideo,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    LTXPipeline,
    LTXVideoTransformer3DModel,
    WanPipeline,
    WanTransformer3DModel,
)
from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

from tests.unit.engines.diffusers.tiny import HIDDEN, bytes_tokenizer

# Sizes that these weights support, in the file that is stored beside real weights.
SMALL = {"area": [1024, 16384], "frames": 9}


def _words(kind: Any) -> dict[str, Any]:
    return kind(vocab_size=300, d_model=HIDDEN, d_kv=8, d_ff=37, num_layers=2, num_heads=4, pad_token_id=0)


def _save(pipeline: Any, folder: Path) -> Path:
    pipeline.save_pretrained(folder, safe_serialization=True)
    (folder / "sixfold.json").write_text(json.dumps({"name": folder.name, "sampling": SMALL}))
    return folder


def wan(folder: Path, *, pictures: bool = False, blocks: int = 1) -> Path:
    """Save a Wan pipeline: text-to-video, or with `pictures` also image-to-video as Wan 2.2 5B."""
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    transformer = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        text_dim=HIDDEN,
        freq_dim=64,
        ffn_dim=32,
        num_layers=blocks,
        cross_attn_norm=True,
        rope_max_seq_len=64,
    )
    pipeline = WanPipeline(
        tokenizer=bytes_tokenizer(),
        text_encoder=UMT5EncoderModel(_words(UMT5Config)),
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=transformer,
        expand_timesteps=pictures,
    )
    return _save(pipeline, folder)


def ltx(folder: Path) -> Path:
    torch.manual_seed(0)
    four = (8, 8, 8, 8)
    vae = AutoencoderKLLTXVideo(
        latent_channels=8,
        block_out_channels=four,
        decoder_block_out_channels=four,
        layers_per_block=(1,) * 5,
        decoder_layers_per_block=(1,) * 5,
        spatio_temporal_scaling=(True, True, True, False),
        decoder_spatio_temporal_scaling=(True, True, True, False),
        patch_size=4,
    )
    transformer = LTXVideoTransformer3DModel(
        in_channels=8,
        out_channels=8,
        num_attention_heads=4,
        attention_head_dim=8,
        cross_attention_dim=32,
        num_layers=1,
        caption_channels=HIDDEN,
    )
    pipeline = LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=T5EncoderModel(_words(T5Config)),
        tokenizer=bytes_tokenizer(),
        transformer=transformer,
    )
    return _save(pipeline, folder)
