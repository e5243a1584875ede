"""Tiny pipelines with random weights in the format of the Hub, to run the real code in a second."""

# The library's own annotations are narrower than what it takes (a tuple of one name for a tuple of names).
# pyright: reportMissingImports=false, reportArgumentType=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    DDIMScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    LCMScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
)

HIDDEN = 32
BLOCKS = (32, 64)


def _letters() -> list[str]:
    """Return GPT-2's printable characters for the 256 bytes, which CLIP's tokenizer uses."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(n) for n in plain] + [chr(256 + n) for n in range(256 - len(plain))]


def tokenizer() -> CLIPTokenizer:
    """Return a CLIP tokenizer whose vocabulary contains only letters."""
    letters = _letters()
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={word: n for n, word in enumerate(words)}, merges=[], model_max_length=77)


def _text_config(projection: int = HIDDEN) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=514,
        bos_token_id=512,
        eos_token_id=513,
        pad_token_id=513,
        hidden_size=HIDDEN,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        projection_dim=projection,
    )


def _vae(**changes: Any) -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(8, 16),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=4,
        sample_size=64,
        **changes,
    )


def _unet(**changes: Any) -> UNet2DConditionModel:
    shape = {
        "block_out_channels": BLOCKS,
        "layers_per_block": 1,
        "sample_size": 32,
        "in_channels": 4,
        "out_channels": 4,
        "norm_num_groups": 8,
        "attention_head_dim": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": HIDDEN,
    }
    return UNet2DConditionModel(**{**shape, **changes})


def _scheduler(**changes: Any) -> DDIMScheduler:
    return DDIMScheduler(
        steps_offset=1,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        **changes,
    )


def stable_diffusion(folder: Path, *, scheduler: Any = None, seed: int = 0) -> Path:
    """Save a Stable Diffusion pipeline for images of 64 x 64."""
    torch.manual_seed(seed)
    pipeline = StableDiffusionPipeline(
        unet=_unet(),
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config()),
        tokenizer=tokenizer(),
        scheduler=scheduler or _scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def stable_diffusion_xl(folder: Path) -> Path:
    """Save a Stable Diffusion XL pipeline with its two text encoders."""
    torch.manual_seed(0)
    unet = _unet(
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=HIDDEN + 6 * 8,
        cross_attention_dim=2 * HIDDEN,
        transformer_layers_per_block=(1, 1),
        use_linear_projection=True,
    )
    pipeline = StableDiffusionXLPipeline(
        unet=unet,
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config()),
        text_encoder_2=CLIPTextModelWithProjection(_text_config()),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        scheduler=_scheduler(),
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def flux(folder: Path) -> Path:
    """Save a FLUX pipeline like schnell: flow matching without a guidance embedding."""
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=HIDDEN,
        pooled_projection_dim=HIDDEN,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=False,
    )
    vae = AutoencoderKL(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.0609,
        scaling_factor=1.5035,
    )
    t5 = T5Config(
        vocab_size=300,
        d_model=HIDDEN,
        d_kv=8,
        d_ff=37,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
    )
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=CLIPTextModel(_text_config()),
        tokenizer=tokenizer(),
        text_encoder_2=T5EncoderModel(t5),
        tokenizer_2=bytes_tokenizer(),
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def z_image(folder: Path) -> Path:
    """Save a Z-Image pipeline: one stream of image and text tokens, a language model as text encoder."""
    torch.manual_seed(0)
    transformer = ZImageTransformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=HIDDEN,
        axes_dims=[4, 6, 6],
        axes_lens=[1024, 512, 512],
    )
    qwen = Qwen3Config(
        vocab_size=300,
        hidden_size=HIDDEN,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    pipeline = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(shift_factor=0.1159, scaling_factor=0.3611),
        text_encoder=Qwen3Model(qwen),
        tokenizer=chat_tokenizer(),
        transformer=transformer,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes with a chat template, instead of Qwen's."""
    words = bytes_tokenizer()
    words.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return words


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes, instead of T5's."""
    letters = {letter: n + 2 for n, letter in enumerate(_letters())}
    fast = Tokenizer(models.BPE(vocab={"<pad>": 0, "</s>": 1, **letters}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", eos_token="</s>", model_max_length=512
    )


def controlnet(folder: Path, base: Path) -> Path:
    """Save a ControlNet with an effect for a tiny Stable Diffusion; new ControlNets have none."""
    torch.manual_seed(1)
    unet = UNet2DConditionModel.from_pretrained(base / "unet")
    # Two channel counts halve the outlines once, as the tiny autoencoder halves the image.
    net = ControlNetModel.from_unet(
        unet, conditioning_embedding_out_channels=(8, 16), load_weights_from_unet=False
    )
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "controlnet" in name:
                parameter.normal_(0, 0.3)
    net.save_pretrained(folder, safe_serialization=True)
    return folder


def lora(file: Path, base: Path, *, seed: int = 3) -> Path:
    """Save a random LoRA for the attention of a tiny UNet."""
    torch.manual_seed(seed)
    unet = UNet2DConditionModel.from_pretrained(base / "unet")
    unet.add_adapter(
        LoraConfig(r=4, init_lora_weights=False, target_modules=["to_k", "to_q", "to_v", "to_out.0"])
    )
    StableDiffusionPipeline.save_lora_weights(
        file.parent, unet_lora_layers=get_peft_model_state_dict(unet), weight_name=file.name
    )
    return file


def poisoned(folder: Path, value: float, base: Path) -> Path:
    """Copy a pipeline, with a decoder that returns `value` for every pixel: NaN, or one color."""
    shutil.copytree(base, folder)
    vae = AutoencoderKL.from_pretrained(folder / "vae")
    with torch.no_grad():
        vae.decoder.conv_out.weight.zero_()
        vae.decoder.conv_out.bias.fill_(value)
    vae.save_pretrained(folder / "vae", safe_serialization=True)
    return folder


def overflowing(folder: Path, base: Path) -> Path:
    """Copy a pipeline, with a decoder that overflows in float16, but not in float32."""
    shutil.copytree(base, folder)
    vae = AutoencoderKL.from_pretrained(folder / "vae")
    with torch.no_grad():
        vae.decoder.conv_in.weight.mul_(3e4)
    vae.save_pretrained(folder / "vae", safe_serialization=True)
    return folder


def pickled(folder: Path, base: Path) -> Path:
    """Copy a pipeline, with a pickle as its UNet."""
    shutil.copytree(base, folder)
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights.unlink()
    torch.save({"harmless": torch.zeros(1)}, weights.with_suffix(".bin"))
    return folder


def guarded(folder: Path, base: Path) -> Path:
    """Copy a pipeline, with a safety checker that withholds every image."""
    tower = CLIPConfig(
        text_config={"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2},
        vision_config={
            "hidden_size": HIDDEN,
            "intermediate_size": 37,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 16,
        },
        projection_dim=16,
    )
    checker = StableDiffusionSafetyChecker(tower)
    with torch.no_grad():
        # The similarity to every concept is above this threshold.
        checker.concept_embeds_weights.fill_(-2)
    pipeline = StableDiffusionPipeline.from_pretrained(
        base,
        safety_checker=checker,
        feature_extractor=CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32),
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def distilled(folder: Path, kind: str) -> Path:
    """Save a pipeline with the scheduler of a distilled model: `turbo` or `lcm`."""
    shape = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
    if kind == "lcm":
        return stable_diffusion(folder, scheduler=LCMScheduler(**shape))
    return stable_diffusion(folder, scheduler=EulerDiscreteScheduler(timestep_spacing="trailing", **shape))


def scramble(folder: Path) -> None:
    """Change a saved pipeline so that it returns noise: the last layer of its decoder becomes random."""
    vae = AutoencoderKL.from_pretrained(folder / "vae")
    torch.manual_seed(0)
    with torch.no_grad():
        last = vae.decoder.conv_out
        last.weight.normal_(0, 1)
        # The layer returns only edges, so that neighboring pixels differ.
        last.weight -= last.weight.mean(dim=(2, 3), keepdim=True)
        last.weight *= torch.tensor([[1.0, -1, 1], [-1, 1, -1], [1, -1, 1]])
    vae.save_pretrained(folder / "vae", safe_serialization=True)
