"""One file per container, each with the same three functions over a file's bytes.

    matches(data) -> bool             do the first bytes look like this container?
    embed(data, text) -> bytes        the same media with `text` in its metadata, replacing an earlier
                                      one; raises `edits.Unembeddable` for a file that is broken or of
                                      a kind that cannot carry it
    extract(data) -> str | None       the text, or None; never raises, whatever the bytes are

Nothing is re-encoded. Sizes that a file claims are believed only where its bytes bear them out.
"""
