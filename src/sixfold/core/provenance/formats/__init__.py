"""Container formats of media files: one module for each, and `media_types`, the table that lists them.

A module offers what its container has of these functions, over a file's bytes or a `Mapped` file:

    header(data) -> MediaHeader            what the file says of its size in pixels or its length in seconds
    is_complete(data) -> bool         False for a file that was cut off
    matches(data) -> bool             do the first bytes look like this container?
    edits(data, text) -> list[Edit]   changes that put `text` into the metadata, replacing an earlier one
    extract(data) -> str | None       the text

All but `matches` raise `MalformedFile`, or an error of `parts.DAMAGE` where the bytes end too early;
`edits` raises `Unembeddable` for a file that cannot carry text. Nothing is decoded or re-encoded. Sizes
that a file claims are believed only where its bytes bear them out, and the parts that are looked at are
counted against a budget.
"""
