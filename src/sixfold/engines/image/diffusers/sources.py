"""Local weights, checked to be complete safetensors before a library loads them.

This module does not use the network. A pickle can run code when it is loaded, so folders and files with
pickles instead of safetensors are rejected.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import EngineError

# Record that `sixfold engines add` writes beside the weights.
RECORD = "sixfold.json"
INDEX = "model_index.json"
_PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl", ".msgpack", ".h5")
# Names of a component's weights: plain, with a variant, in shards. Files with other names are ignored.
WEIGHTS = re.compile(
    r"(?:diffusion_pytorch_model|model)(?:\.(?P<variant>\w+))?(?:-\d{5}-of-\d{5})?\.safetensors"
)
VARIANTS = ("fp16", "bf16")
# Limit of the safetensors format.
_MAX_HEADER_BYTES = 100 << 20
_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
# Components without weights; every other component of an index has weights.
_WEIGHTLESS = ("Tokenizer", "Scheduler", "Processor", "FeatureExtractor")


class WeightSource(msgspec.Struct, frozen=True):
    """Weights on this machine.

    The weights are either a folder in the layout of diffusers, or one checkpoint file with the folder of its
    configuration. `record` is the content of the file that `engines add` wrote.
    """

    name: str
    folder: Path
    file: Path | None = None
    record: Mapping[str, Any] = {}

    @property
    def key(self) -> str:
        """Path that identifies the source on this machine."""
        return str(self.file or self.folder)


def find(name: str, weights: Path | None, hub_cache: Path | None) -> WeightSource:
    """Return the source that `name` refers to; raises `EngineError`."""
    if not name:
        raise EngineError(
            "No weights are configured for this model: add some with `sixfold engines add image`."
        )
    if weights is not None and _is_plain(name) and (weights / name).is_dir():
        return _folder(name, weights / name)
    path = Path(name).expanduser()
    if path.suffix.lower() in _PICKLES:
        raise EngineError(_pickle_message(path.name))
    if path.is_file():
        return _file(path.stem, path, hub_cache)
    if path.is_dir():
        # Paths of this machine must not appear in logs and results.
        return _folder(path.name, path)
    if not path.is_absolute() and name.count("/") == 1:
        return _folder(name, _cached(name, hub_cache))
    raise EngineError(f"Weights {name} not found on this machine: add some with `sixfold engines add image`.")


def added_weights(weights: Path) -> dict[str, str]:
    """Return the names of weights that `engines add` installed in a folder, by model.

    The key "" contains the first installed weights, the default for all other models. ControlNets are not
    included.
    """
    names: dict[str, str] = {}
    paths = [path for path in weights.glob(f"*/{RECORD}") if not path.parent.name.startswith(".")]
    records = [(read_json(path), path.parent.name) for path in paths]
    for record, name in sorted(records, key=lambda pair: (str(pair[0].get("added", "")), pair[1])):
        if record.get("role", "pipeline") == "pipeline":
            for service in (*record.get("serves", ()), ""):
                names.setdefault(service, name)
    return names


def added_controls(weights: Path, kind: str) -> list[Path]:
    """Return the folders of installed ControlNets of a kind, sorted by name."""
    paths = [path for path in sorted(weights.glob(f"*/{RECORD}")) if not path.parent.name.startswith(".")]
    return [path.parent for path in paths if read_json(path).get("control") == kind]


def _is_plain(name: str) -> bool:
    return "/" not in name and "\\" not in name and name not in {".", ".."}


def _pickle_message(file_name: str) -> str:
    return f"{file_name} is a pickle, which can run code when it is loaded; only safetensors are supported."


def _folder(name: str, folder: Path) -> WeightSource:
    record = read_json(folder / RECORD) if (folder / RECORD).is_file() else {}
    files = list(folder.glob("*.safetensors"))
    if len(files) == 1 and not any(folder.glob("*/*.safetensors")):
        # The folder contains one file beside its configuration.
        return WeightSource(name, folder, files[0], record)
    check(folder)
    return WeightSource(name, folder, None, record)


def _file(name: str, path: Path, hub_cache: Path | None) -> WeightSource:
    """Return a single-file checkpoint with its configuration.

    The configuration is in the folder of the file's name or in the Hub cache.
    """
    if path.suffix.lower() != ".safetensors":
        raise EngineError(f"{path.name} is not a .safetensors file.")
    header(path)
    beside = path.with_suffix("")
    if (beside / INDEX).is_file():
        return WeightSource(name, beside, path)
    from diffusers.loaders.single_file_utils import fetch_diffusers_config, load_single_file_checkpoint

    config = fetch_diffusers_config(load_single_file_checkpoint(str(path)))
    repository = str(config["pretrained_model_name_or_path"])
    try:
        return WeightSource(name, _cached(repository, hub_cache), path)
    except EngineError:
        raise EngineError(
            f"{path.name} requires the configuration of {repository}: copy its {INDEX}, configuration and "
            f"tokenizer files into the folder {beside.name} next to {path.name}."
        ) from None


def _cached(name: str, hub_cache: Path | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        path = snapshot_download(
            repository, revision=revision or None, cache_dir=hub_cache, local_files_only=True
        )
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        raise EngineError(
            f"{name} not found in the local Hub cache: add weights with `sixfold engines add image`."
        ) from None
    return Path(path)


# -- checks of a folder ----------------------------------------------------------------------------


def check(folder: Path) -> None:
    """Raise `EngineError` if a folder is incomplete or contains pickles instead of safetensors."""
    if not (folder / INDEX).is_file():
        stray = next((path.name for path in sorted(folder.iterdir()) if path.suffix in _PICKLES), None)
        if stray:
            raise EngineError(_pickle_message(stray))
        raise EngineError(f"{folder.name} does not have the layout of diffusers: {INDEX} is missing.")
    for component in components(folder):
        check_component(folder / component, f"{folder.name}/{component}")


def components(folder: Path) -> Iterator[str]:
    """Return the components of a pipeline's folder that have weights."""
    return weighted_components(read_json(folder / INDEX))


def weighted_components(index: Mapping[str, Any]) -> Iterator[str]:
    """Return the components of a `model_index.json` that have weights."""
    for name, value in index.items():
        if name.startswith("_") or not isinstance(value, list) or len(value) != 2 or value[1] is None:
            continue
        if not any(word in str(value[1]) for word in _WEIGHTLESS):
            yield name


def check_component(folder: Path, title: str) -> None:
    """Raise `EngineError` if a model's folder does not contain complete safetensors."""
    files = weight_files(folder)
    if not files:
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        pickled = next((path.name for path in entries if path.suffix in _PICKLES), None)
        if pickled:
            raise EngineError(_pickle_message(f"{title}/{pickled}"))
        raise EngineError(
            f"{title} does not contain weights: a file was deleted, or the download is incomplete. Run "
            "`sixfold engines add` for it again."
        )
    for path in files:
        if not path.is_file():
            raise EngineError(f"{title} is missing {path.name}, which its index lists.")
        header(path)


def variant(folder: Path) -> str | None:
    """Return the variant (such as `fp16`) to load if a component has no other weights, else None."""
    for component in components(folder):
        names = [path.name for path in weight_files(folder / component)]
        kind = next((match["variant"] for name in names if (match := WEIGHTS.fullmatch(name))), None)
        if kind:
            return kind
    return None


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors that a model is loaded from: the plain files, or else those of a variant."""
    for kind in (None, *VARIANTS):
        files = [path for path in sorted(folder.glob("*.safetensors")) if _is_of(path.name, kind)]
        index = folder / f"*.safetensors.index{f'.{kind}' if kind else ''}.json"
        for index_path in sorted(folder.glob(index.name)):
            names = sorted(set(read_json(index_path).get("weight_map", {}).values()))
            return [folder / name for name in names if _is_plain(str(name))]
        if files:
            return files
    return []


def _is_of(name: str, kind: str | None) -> bool:
    match = WEIGHTS.fullmatch(name)
    return match is not None and match["variant"] == kind


def sizes(source: WeightSource, item_bytes: int) -> dict[str, int]:
    """Return the memory in bytes of each component when a floating-point number takes `item_bytes`."""
    if source.file is not None:
        return {"checkpoint": _bytes_of(source.file, item_bytes)}
    return {
        name: sum(_bytes_of(path, item_bytes) for path in weight_files(source.folder / name))
        for name in components(source.folder)
    }


def _bytes_of(path: Path, item_bytes: int) -> int:
    total = 0
    for name, tensor in header(path).items():
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            kind = str(tensor["dtype"])
            scaled = (last - first) // _ITEM_BYTES.get(kind, 1) * item_bytes
            total += scaled if kind in _FLOATS else last - first
    return total


def header(path: Path) -> dict[str, Any]:
    """Return a safetensors file's table of tensors; raises `EngineError` if the file is invalid."""
    broken = EngineError(f"{path.name} is damaged or not a safetensors file.")
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 0 < length <= _MAX_HEADER_BYTES:
                raise broken
            tensors = json.loads(file.read(length))
        end = max((t["data_offsets"][1] for n, t in tensors.items() if n != "__metadata__"), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise broken from error
    if path.stat().st_size != 8 + length + end:
        raise EngineError(
            f"{path.name} is truncated: it has {path.stat().st_size} of {8 + length + end} bytes."
        )
    return tensors


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; raises `EngineError`."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path.parent.name}/{path.name} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise EngineError(f"{path.parent.name}/{path.name} must be a JSON object.")
    return value
