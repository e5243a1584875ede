"""A folder with a Gradio application: its `README.md` metadata, as on the Hub, and its requirements."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from sixfold import errors

PORT = 7860
_README, _REQUIREMENTS, _DOCKERFILE = "README.md", "requirements.txt", "Dockerfile"
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_VERSION = re.compile(r"\d+(\.\d+){0,3}")
_MAX_BYTES = 2**30
_SKIPPED = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules"})


@dataclass(frozen=True, slots=True)
class SpaceFolder:
    """An application: its entry file, pip arguments, and whether it has a Dockerfile."""

    path: Path
    app: str
    requirements: tuple[str, ...]
    built: bool
    title: str

    def dockerfile(self, base: str) -> str:
        """Return a Dockerfile for an application without one."""
        words = " ".join(self.requirements)
        lines = [
            f"FROM {base}",
            "WORKDIR /space",
            "COPY . .",
            *([f"RUN pip install --no-cache-dir {words}"] if words else []),
            f"ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT={PORT} GRADIO_ANALYTICS_ENABLED=False",
            f'CMD ["python", "{self.app}"]',
        ]
        return "\n".join(lines) + "\n"

    def context(self, base: str) -> bytes:
        """Return the build context as a tar archive."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path in files(self.path):
                tar.add(path, str(path.relative_to(self.path)), recursive=False, filter=_plain)
            if not self.built:
                text = self.dockerfile(base).encode()
                about = tarfile.TarInfo(_DOCKERFILE)
                about.size = len(text)
                tar.addfile(about, io.BytesIO(text))
        return packed.getvalue()


def _plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
    """Reset the owner, and make the file readable for any user of the image."""
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    about.mode = 0o755 if about.mode & 0o100 else 0o644
    return about


def read(path: Path) -> SpaceFolder:
    """Return the application in a folder; raises `BadRequest` if there is none."""
    facts = _front_matter(path / _README)
    sdk = str(facts.get("sdk") or "gradio")
    built = (path / _DOCKERFILE).is_file()
    if sdk not in ("gradio", "docker") or (sdk == "docker" and not built):
        raise errors.BadRequest(f"{path.name} is a space of {sdk}; applications of Gradio can be imported")
    app = str(facts.get("app_file") or "app.py")
    if not built and (Path(app).is_absolute() or ".." in Path(app).parts or not (path / app).is_file()):
        raise errors.BadRequest(f"{path.name} has no {app} that would start it")
    if not re.fullmatch(r"[\w./-]+", app):
        raise errors.BadRequest(f"{path.name} names a file that cannot be started")
    version = str(facts.get("sdk_version") or "")
    exact = f"=={version}" if _VERSION.fullmatch(version) else ""
    needed = [f"gradio{exact}"] if facts.get("sdk") == "gradio" else []
    needed += ["-r", _REQUIREMENTS] if (path / _REQUIREMENTS).is_file() else []
    return SpaceFolder(path, app, tuple(needed), built, str(facts.get("title") or path.name)[:200])


def files(path: Path) -> Iterator[Path]:
    """Yield the files of an application without links, installed packages and version control.

    Raises `BadRequest` above one gigabyte.
    """
    size = 0
    for one in sorted(path.rglob("*")):
        if one.is_symlink() or not one.is_file() or _SKIPPED & set(one.relative_to(path).parts):
            continue
        size += one.stat().st_size
        if size > _MAX_BYTES:
            raise errors.BadRequest(f"{path.name} is larger than a gigabyte")
        yield one


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        found = _FRONT.match(path.read_text("utf-8", "replace"))
        facts = yaml.safe_load(found[1]) if found else None
    except (OSError, yaml.YAMLError):
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
