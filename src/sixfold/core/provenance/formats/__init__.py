"""Container formats of media files: a module for each, and `media_types`, the table of all formats.

A module provides those of these functions that its container supports, on a file's bytes or a `MappedFile`:

    header(data) -> MediaHeader           dimensions in pixels or duration in seconds, as the file states them
    is_complete(data) -> bool             False for a truncated file
    matches(data) -> bool                 whether the first bytes look like this container
    edits(data, text) -> list[FileEdit]   changes that put `text` into the metadata, replacing an earlier one
    extract(data) -> str | None           the text

All but `matches` raise `MalformedFile`, or an error of `parts.DAMAGE` if the data ends too early. `edits`
raises `Unembeddable` for a file that cannot carry text. Nothing is decoded or re-encoded. Stated sizes are
checked against the length of the file, and a budget limits the parts that are read.
"""
