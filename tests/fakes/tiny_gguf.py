"""A language model of 30,000 random numbers in a GGUF file, as llama.cpp runs it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, INNER = 32, 2, 64
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
_BYTES = [f"<0x{value:02X}>".encode() for value in range(256)]
_LETTERS = [*(bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"), "▁".encode()]
_TOKENS = [b"<unk>", b"<s>", b"</s>", *_BYTES, *_LETTERS]
_KINDS = [2, 3, 3, *[6] * 256, *[1] * len(_LETTERS)]


def write(
    path: Path, *, seed: int = 0, context: int = 512, architecture: str = "llama", letters: bool = False
) -> Path:
    """Write a model; what it says is noise, and the same noise for the same numbers. Of `letters` only."""
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
