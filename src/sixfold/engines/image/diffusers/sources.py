"""Finds weights on this machine and looks at them before any library does: safetensors, whole, known.

Nothing here reaches for the network. A pickle can run code when it is read, so folders and files that
hold one in place of safetensors are refused.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError

RECORD = "sixfold.json"  # what `sixfold engines add` writes beside the weights
INDEX = "model_index.json"
_PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl", ".msgpack", ".h5")
# What a component's weights are called: plain, in a variant, in shards. Other names are other people's.
WEIGHTS = re.compile(
    r"(?:diffusion_pytorch_model|model)(?:\.(?P<variant>\w+))?(?:-\d{5}-of-\d{5})?\.safetensors"
)
VARIANTS = ("fp16", "bf16")
_MAX_HEADER_BYTES = 100 << 20  # the format's own bound
_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
# A tokenizer, a scheduler or a processor holds no weights; whatever else an index names does.
_WEIGHTLESS = ("Tokenizer", "Scheduler", "Processor", "FeatureExtractor")


@dataclass(frozen=True, slots=True)
class WeightSource:
    """Weights that were found: a folder in diffusers' layout, or one checkpoint file with the folder
    that holds its configuration. `record` is what was written when they were added."""

    name: str
    folder: Path
    file: Path | None = None
    record: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """What tells it from every other source on this machine."""
        return str(self.file or self.folder)


def find(name: str, weights: Path | None, hub_cache: Path | None) -> WeightSource:
    """The source that `name` means; raises `EngineError` with one sentence."""
    if not name:
        raise EngineError("No weights were chosen for this model: `sixfold engines add image` adds some.")
    if weights is not None and _is_plain(name) and (weights / name).is_dir():
        return _folder(name, weights / name)
    path = Path(name).expanduser()
    if path.suffix.lower() in _PICKLES:
        raise EngineError(_refusal(path.name))
    if path.is_file():
        return _file(path.stem, path, hub_cache)
    if path.is_dir():
        return _folder(path.name, path)  # the log and the result are no place for this machine's paths
    if not path.is_absolute() and name.count("/") == 1:
        return _folder(name, _cached(name, hub_cache))
    raise EngineError(f"There are no weights {name} on this machine: `sixfold engines add image` adds some.")


def added(weights: Path) -> dict[str, str]:
    """What `engines add` put under a family's folder, by the services that it was made for.

    Under "" stands what came first; it serves whatever nothing was made for. ControlNets serve nothing.
    """
    found: dict[str, str] = {}
    places = [path for path in weights.glob(f"*/{RECORD}") if not path.parent.name.startswith(".")]
    records = [(read_json(path), path.parent.name) for path in places]
    for record, name in sorted(records, key=lambda pair: (str(pair[0].get("added", "")), pair[1])):
        if record.get("role", "pipeline") == "pipeline":
            for service in (*record.get("serves", ()), ""):
                found.setdefault(service, name)
    return found


def controls(weights: Path, kind: str) -> list[Path]:
    """The ControlNets of a kind that `engines add` put under a family's folder, by name."""
    places = [path for path in sorted(weights.glob(f"*/{RECORD}")) if not path.parent.name.startswith(".")]
    return [path.parent for path in places if read_json(path).get("control") == kind]


def _is_plain(name: str) -> bool:
    return "/" not in name and "\\" not in name and name not in {".", ".."}


def _refusal(what: str) -> str:
    return f"{what} is a pickle, which can run code when it is read: only safetensors are loaded."


def _folder(name: str, folder: Path) -> WeightSource:
    record = read_json(folder / RECORD) if (folder / RECORD).is_file() else {}
    alone = list(folder.glob("*.safetensors"))
    if len(alone) == 1 and not any(folder.glob("*/*.safetensors")):  # one file beside its configuration
        return WeightSource(name, folder, alone[0], record)
    check(folder)
    return WeightSource(name, folder, None, record)


def _file(name: str, path: Path, hub_cache: Path | None) -> WeightSource:
    """A checkpoint in one file, with its configuration: the folder of its name, or the Hub's cache."""
    if path.suffix.lower() != ".safetensors":
        raise EngineError(f"{path.name} is no .safetensors file.")
    header(path)
    beside = path.with_suffix("")
    if (beside / INDEX).is_file():
        return WeightSource(name, beside, path)
    from diffusers.loaders.single_file_utils import fetch_diffusers_config, load_single_file_checkpoint

    known = fetch_diffusers_config(load_single_file_checkpoint(str(path)))
    repository = str(known["pretrained_model_name_or_path"])
    try:
        return WeightSource(name, _cached(repository, hub_cache), path)
    except EngineError:
        raise EngineError(
            f"{path.name} needs the configuration of {repository}: put that repository's {INDEX} and its "
            f"small files into the folder {beside.name} beside it."
        ) from None


def _cached(name: str, hub_cache: Path | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        found = snapshot_download(
            repository, revision=revision or None, cache_dir=hub_cache, local_files_only=True
        )
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        raise EngineError(
            f"There is no {name} in the Hub's cache here: `sixfold engines add image` adds weights."
        ) from None
    return Path(found)


# -- what a folder must hold -----------------------------------------------------------------------


def check(folder: Path) -> None:
    """Refuse a folder that is not whole, or holds pickles where safetensors belong."""
    if not (folder / INDEX).is_file():
        stray = next((path.name for path in sorted(folder.iterdir()) if path.suffix in _PICKLES), None)
        if stray:
            raise EngineError(_refusal(stray))
        raise EngineError(f"{folder.name} has no {INDEX}: it is no folder in diffusers' layout.")
    for component in components(folder):
        check_component(folder / component, f"{folder.name}/{component}")


def components(folder: Path) -> Iterator[str]:
    """The components of a pipeline's folder that hold weights."""
    return weighted(read_json(folder / INDEX))


def weighted(index: Mapping[str, Any]) -> Iterator[str]:
    """The components of a `model_index.json` that hold weights."""
    for name, value in index.items():
        if name.startswith("_") or not isinstance(value, list) or len(value) != 2 or value[1] is None:
            continue
        if not any(word in str(value[1]) for word in _WEIGHTLESS):
            yield name


def check_component(folder: Path, title: str) -> None:
    """Refuse a model's folder without whole safetensors."""
    chosen = weight_files(folder)
    if not chosen:
        held = sorted(folder.iterdir()) if folder.is_dir() else []
        pickled = next((path.name for path in held if path.suffix in _PICKLES), None)
        if pickled:
            raise EngineError(_refusal(f"{title}/{pickled}"))
        raise EngineError(f"There are no weights in {title}: a download was not finished, or a file is lost.")
    for path in chosen:
        if not path.is_file():
            raise EngineError(f"{title} lacks {path.name}, which its index names.")
        header(path)


def variant(folder: Path) -> str | None:
    """The variant (`fp16`) that a pipeline's folder is loaded in, where some component has nothing else."""
    for component in components(folder):
        names = [path.name for path in weight_files(folder / component)]
        found = next((match["variant"] for name in names if (match := WEIGHTS.fullmatch(name))), None)
        if found:
            return found
    return None


def weight_files(folder: Path) -> list[Path]:
    """The safetensors that a model's folder is loaded from: its plain ones, or else those of a variant."""
    for kind in (None, *VARIANTS):
        files = [path for path in sorted(folder.glob("*.safetensors")) if _is_of(path.name, kind)]
        index = folder / f"*.safetensors.index{f'.{kind}' if kind else ''}.json"
        for listed in sorted(folder.glob(index.name)):
            names = sorted(set(read_json(listed).get("weight_map", {}).values()))
            return [folder / name for name in names if _is_plain(str(name))]
        if files:
            return files
    return []


def _is_of(name: str, kind: str | None) -> bool:
    found = WEIGHTS.fullmatch(name)
    return found is not None and found["variant"] == kind


def sizes(source: WeightSource, item_bytes: int) -> dict[str, int]:
    """What each component takes in memory when its floating numbers have `item_bytes` each."""
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
    """A safetensors file's table of tensors; raises `EngineError` where the file is no such file."""
    broken = EngineError(f"{path.name} is damaged, or no safetensors file.")
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 0 < length <= _MAX_HEADER_BYTES:
                raise broken
            found = json.loads(file.read(length))
        end = max((t["data_offsets"][1] for n, t in found.items() if n != "__metadata__"), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise broken from error
    if path.stat().st_size != 8 + length + end:
        raise EngineError(f"{path.name} is cut off: {path.stat().st_size} bytes of {8 + length + end}.")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file; raises `EngineError`."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path.parent.name}/{path.name} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise EngineError(f"{path.parent.name}/{path.name} is not what it should be.")
    return found
