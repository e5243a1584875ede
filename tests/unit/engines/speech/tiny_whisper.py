"""A Whisper model of a few random weights, converted as faster-whisper's models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperForConditionalGeneration

_LANGUAGES = ("en", "de", "fr")
_SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{language}|>" for language in _LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
_SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}


def _tokenizer() -> Any:
    """Return a tokenizer of bytes, with Whisper's special tokens and times."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: at for at, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.add_tokens([f"<|{step * 0.02:.2f}|>" for step in range(1501)])
    return tokenizer


def write(folder: Path, scratch: Path) -> Path:
    tokenizer = _tokenizer()
    end, start = (tokenizer.token_to_id(token) for token in _SPECIAL[:2])
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=start,
        **_SIZES,
    )
    model: Any = WhisperForConditionalGeneration(config)
    model.generation_config.alignment_heads = [[0, 0]]
    model.generation_config.lang_to_id = {
        f"<|{language}|>": tokenizer.token_to_id(f"<|{language}|>") for language in _LANGUAGES
    }
    model.generation_config.suppress_tokens = []
    model.generation_config.begin_suppress_tokens = [end]
    scratch.mkdir(exist_ok=True)
    model.save_pretrained(scratch)
    tokenizer.save(str(scratch / "tokenizer.json"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_SPECIAL[0]).save_pretrained(scratch)
    folder.parent.mkdir(parents=True, exist_ok=True)
    TransformersConverter(str(scratch), copy_files=["tokenizer.json"]).convert(str(folder), force=True)
    return folder
