"""A folder with a Gradio application: its `README.md` metadata, as on the Hub, and its requirements."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from sixfold import errors

PORT = 7860
_README, _REQUIREMENTS, _DOCKERFILE = "README.md", "requirements.txt", "Dockerfile"
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_VERSION = re.compile(r"\d+(\.\d+){0,3}")
_MAX_BYTES = 2**30
_SKIPPED = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules"})


class SpaceFolder(msgspec.Struct, frozen=True):
    """An application: its entry file, pip arguments, and whether it has a Dockerfile."""

    path: Path
    app: str
    requirements: tuple[str, ...]
    built: bool
    title: str

    def dockerfile(self, base: str) -> str:
        """Return a Dockerfile for an application without one."""
        arguments = " ".join(self.requirements)
        lines = [
            f"FROM {base}",
            "WORKDIR /space",
            "COPY . .",
            *([f"RUN pip install --no-cache-dir {arguments}"] if arguments else []),
            f"ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT={PORT} GRADIO_ANALYTICS_ENABLED=False",
            f'CMD ["python", "{self.app}"]',
        ]
        return "\n".join(lines) + "\n"

    def context(self, base: str) -> bytes:
        """Return the build context of the container image as a tar archive."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path in files(self.path):
                tar.add(path, str(path.relative_to(self.path)), recursive=False, filter=_normalize_member)
            if not self.built:
                text = self.dockerfile(base).encode()
                info = tarfile.TarInfo(_DOCKERFILE)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        return archive.getvalue()


def _normalize_member(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Reset the owner, and make the file readable for any user of the image."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


def read(path: Path) -> SpaceFolder:
    """Return the application in a folder; raises `BadRequest` if it cannot be imported."""
    metadata = _front_matter(path / _README)
    sdk = str(metadata.get("sdk") or "gradio")
    has_dockerfile = (path / _DOCKERFILE).is_file()
    if sdk not in ("gradio", "docker") or (sdk == "docker" and not has_dockerfile):
        raise errors.BadRequest(f"{path.name} uses the SDK {sdk}; only Gradio applications can be imported")
    app = str(metadata.get("app_file") or "app.py")
    if not has_dockerfile and (
        Path(app).is_absolute() or ".." in Path(app).parts or not (path / app).is_file()
    ):
        raise errors.BadRequest(f"{path.name} does not contain {app}, the file that starts the application")
    if not re.fullmatch(r"[\w./-]+", app):
        raise errors.BadRequest(
            f"{path.name} has an invalid app_file: use letters, digits, '.', '_', '-' and '/' only"
        )
    version = str(metadata.get("sdk_version") or "")
    version_suffix = f"=={version}" if _VERSION.fullmatch(version) else ""
    requirements = [f"gradio{version_suffix}"] if metadata.get("sdk") == "gradio" else []
    requirements += ["-r", _REQUIREMENTS] if (path / _REQUIREMENTS).is_file() else []
    return SpaceFolder(
        path, app, tuple(requirements), has_dockerfile, str(metadata.get("title") or path.name)[:200]
    )


def files(path: Path) -> Iterator[Path]:
    """Yield the files of an application without links, installed packages and version control.

    Raises `BadRequest` above one gigabyte.
    """
    size = 0
    for file in sorted(path.rglob("*")):
        if file.is_symlink() or not file.is_file() or _SKIPPED & set(file.relative_to(path).parts):
            continue
        size += file.stat().st_size
        if size > _MAX_BYTES:
            raise errors.BadRequest(f"{path.name} must be at most 1 GiB")
        yield file


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        match = _FRONT.match(path.read_text("utf-8", "replace"))
        metadata = yaml.safe_load(match[1]) if match else None
    except (OSError, yaml.YAMLError):
        return {}
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
