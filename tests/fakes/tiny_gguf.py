"""A language model of 30,000 random numbers in a GGUF file, as llama.cpp runs it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, INNER = 32, 2, 64
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
_EYES = {
    "image_size": 28, "patch_size": 14, "embedding_length": WIDTH, "feed_forward_length": INNER,
    "projection_dim": WIDTH, "block_count": 2, "attention.head_count": HEADS,
}  # fmt: skip
_BYTES = [f"<0x{value:02X}>".encode() for value in range(256)]
_LETTERS = [*(bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"), "▁".encode()]
_TOKENS = [b"<unk>", b"<s>", b"</s>", *_BYTES, *_LETTERS]
_KINDS = [2, 3, 3, *[6] * 256, *[1] * len(_LETTERS)]


def write(
    path: Path, *, seed: int = 0, context: int = 512, architecture: str = "llama", letters: bool = False
) -> Path:
    """Write a model whose output is noise, determined by its numbers; only of `letters`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = gguf.GGUFWriter(str(path), architecture)
    file.add_context_length(context)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(len(_TOKENS))
    file.add_tokenizer_model("llama")
    file.add_token_list(_TOKENS)
    file.add_token_scores([0.0] * len(_TOKENS))
    file.add_token_types(_KINDS)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    file.add_chat_template(TEMPLATE)
    for name, shape in _tensors().items():
        numbers = np.random.default_rng([seed, *name.encode()]).standard_normal(shape) * 0.3
        if letters and name == "output.weight":
            numbers[: -len(_LETTERS)] = 0.0
        file.add_tensor(name, (np.ones(shape) if "norm" in name else numbers).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def write_eyes(path: Path) -> Path:
    """Write the vision part of such a model: an image of any size is four tokens."""
    file = gguf.GGUFWriter(str(path), "clip")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_bool("clip.use_gelu", True)
    file.add_string("clip.projector_type", "mlp")
    for name, number in _EYES.items():
        file.add_uint32(f"clip.vision.{name}", number)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        file.add_array(f"clip.vision.{name}", [0.5] * 3)
    numbers = np.random.default_rng(0)
    for name, shape in _eye_tensors().items():
        file.add_tensor(name, (numbers.standard_normal(shape) * 0.1).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def _eye_tensors() -> dict[str, tuple[int, ...]]:
    wide, square = (WIDTH,), (WIDTH, WIDTH)
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (WIDTH, 3, 14, 14),
        "v.class_embd": wide,
        "v.position_embd.weight": (5, WIDTH),
    }
    layers = {
        "attn_q": square,
        "attn_k": square,
        "attn_v": square,
        "attn_out": square,
        "ln1": wide,
        "ln2": wide,
    }
    layers |= {"ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
    named = {f"v.blk.{block}.{name}": shape for block in range(2) for name, shape in layers.items()}
    for name, shape in {"v.pre_ln": wide, "v.post_ln": wide, **named, "mm.0": square, "mm.2": square}.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def _tensors() -> dict[str, tuple[int, ...]]:
    attention = {f"blk.0.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
    return {
        "token_embd.weight": (len(_TOKENS), WIDTH),
        "output.weight": (len(_TOKENS), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        **attention,
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
