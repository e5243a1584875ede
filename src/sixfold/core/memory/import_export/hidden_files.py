"""Hidden files of exports: pages whose slug makes their file hidden, such as `a/.b`.

Imports omit hidden files, which belong to applications. Therefore, the front matter of a hidden file of an
export states its slug, and imports remove this field.
"""

from __future__ import annotations

from sixfold.core.memory import frontmatter
from sixfold.core.memory.import_export import paths

_FIELD = "page_slug"


def marked(path: str, text: str) -> str:
    """Return the text of an exported file, with its slug in the front matter if the file is hidden."""
    if not _is_hidden(path):
        return text
    head = frontmatter.block(text)
    return frontmatter.update(head, {_FIELD: paths.slug(path) or ""}) + text[len(head) :]


def unmarked(path: str, text: str) -> str | None:
    """Return the text that `marked` received for a hidden file, or None for a file that it did not mark."""
    head = frontmatter.block(text) if _is_hidden(path) else ""
    if not head or frontmatter.value(head, _FIELD) != paths.slug(path):
        return None
    own = frontmatter.update(head, {_FIELD: ""})
    return (own if frontmatter.inside(own).strip() else "") + text[len(head) :]


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".") or not paths.is_visible(path)
