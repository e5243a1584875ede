"""Saves a Stable Diffusion pipeline as one checkpoint file with the original layer names."""

# pyright: reportMissingImports=false

from __future__ import annotations

import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

State = dict[str, torch.Tensor]

_LAYERS = 1  # per block, in the tiny UNet
_STEP = _LAYERS + 1  # blocks of the checkpoint for one block of the pipeline
_TOP = {
    "time_embedding.linear_1.": "time_embed.0.",
    "time_embedding.linear_2.": "time_embed.2.",
    "conv_in.": "input_blocks.0.0.",
    "conv_norm_out.": "out.0.",
    "conv_out.": "out.2.",
}
_RESNET = {
    "norm1.": "in_layers.0.",
    "conv1.": "in_layers.2.",
    "norm2.": "out_layers.0.",
    "conv2.": "out_layers.3.",
    "time_emb_proj.": "emb_layers.1.",
    "conv_shortcut.": "skip_connection.",
}
_ATTENTION = {"group_norm.": "norm.", "to_q.": "q.", "to_k.": "k.", "to_v.": "v.", "to_out.0.": "proj_out."}


def write(folder: Path, target: Path) -> Path:
    """Write the pipeline in `folder` to the file `target`, and its configuration to a folder beside it."""
    state = {f"model.diffusion_model.{k}": v for k, v in _unet(_read(folder / "unet")).items()}
    state |= {f"first_stage_model.{k}": v for k, v in _autoencoder(_read(folder / "vae")).items()}
    text = _read(folder / "text_encoder")
    state |= {f"cond_stage_model.transformer.text_model.{name}": value for name, value in text.items()}
    save_file(state, target)
    shutil.copytree(folder, target.with_suffix(""), ignore=shutil.ignore_patterns("*.safetensors"))
    return target


def _read(folder: Path) -> State:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def _unet(state: State) -> State:
    upsamplers = {name.split(".")[1] for name in state if re.match(r"up_blocks\.\d+\.attentions", name)}

    def up(match: re.Match[str]) -> str:
        index = 2 if match[1] in upsamplers else 1
        return f"output_blocks.{int(match[1]) * _STEP + _LAYERS}.{index}.conv"

    def block(match: re.Match[str]) -> str:
        side, kind = ("input", 1) if match[1] == "down" else ("output", 0)
        number = kind + int(match[2]) * _STEP + int(match[4])
        return f"{side}_blocks.{number}.{int(match[3] == 'attentions')}."

    renamed: State = {}
    for name, value in state.items():
        new = next((to + name[len(at) :] for at, to in _TOP.items() if name.startswith(at)), name)
        new = re.sub(r"^(down|up)_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.", block, new)
        new = re.sub(
            r"^down_blocks\.(\d+)\.downsamplers\.0\.conv",
            lambda match: f"input_blocks.{(int(match[1]) + 1) * _STEP}.0.op",
            new,
        )
        new = re.sub(r"^up_blocks\.(\d+)\.upsamplers\.0\.conv", up, new)
        new = re.sub(r"^mid_block\.resnets\.(\d+)", lambda match: f"middle_block.{2 * int(match[1])}", new)
        new = new.replace("mid_block.attentions.0", "middle_block.1")
        if name.startswith(("down_blocks", "up_blocks", "mid_block")) and "transformer_blocks" not in name:
            for theirs, ours in _RESNET.items():
                new = new.replace(theirs, ours)
        renamed[new] = value
    return renamed


def _autoencoder(state: State) -> State:
    last = max(int(match[1]) for name in state if (match := re.match(r"decoder\.up_blocks\.(\d+)", name)))
    renamed: State = {}
    for name, value in state.items():
        new = re.sub(r"down_blocks\.(\d+)\.resnets\.(\d+)", r"down.\1.block.\2", name)
        new = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", new)
        new = re.sub(r"up_blocks\.(\d+)\.resnets", lambda match: f"up.{last - int(match[1])}.block", new)
        new = re.sub(
            r"up_blocks\.(\d+)\.upsamplers\.0", lambda match: f"up.{last - int(match[1])}.upsample", new
        )
        new = re.sub(r"mid_block\.resnets\.(\d+)", lambda match: f"mid.block_{int(match[1]) + 1}", new)
        new = new.replace("mid_block.attentions.0", "mid.attn_1").replace("conv_norm_out", "norm_out")
        new = new.replace("conv_shortcut", "nin_shortcut")
        if "attn_1" in new:
            for theirs, ours in _ATTENTION.items():
                new = new.replace(f"attn_1.{theirs}", f"attn_1.{ours}")
            value = value[:, :, None, None].contiguous() if value.ndim == 2 else value
        renamed[new] = value
    return renamed
