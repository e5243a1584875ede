"""XMP packets that contain the text, alone or together with metadata of other applications."""

from __future__ import annotations

import re

from sixfold.core.provenance.formats.edits import Unembeddable, text_of

_OURS = re.compile(
    rb'<rdf:Description rdf:about="" xmlns:sixfold="urn:sixfold:manifest:1">'
    rb"<sixfold:Manifest>([^<]*)</sixfold:Manifest></rdf:Description>"
)
_END = b"</rdf:RDF>"
_EMPTY = (
    b'<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
    b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"></rdf:RDF></x:xmpmeta>'
    b'<?xpacket end="w"?>'
)
_ENTITIES = {b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'", b"amp": b"&"}
_ENTITY = re.compile(rb"&(lt|gt|quot|apos|amp|#34|#39|#38|#60|#62);")
_NUMBERS = {b"#34": b'"', b"#39": b"'", b"#38": b"&", b"#60": b"<", b"#62": b">"}


def merge(packet: bytes | None, text: str) -> bytes:
    """Return the packet (or a new one) with this project's description last, replacing an earlier one."""
    packet = _EMPTY if packet is None else _OURS.sub(b"", packet)
    head, end, tail = packet.rpartition(_END)
    if not end:
        raise Unembeddable("the XMP packet of this file is malformed")
    ours = (
        b'<rdf:Description rdf:about="" xmlns:sixfold="urn:sixfold:manifest:1"><sixfold:Manifest>'
        + escaped(text).encode()
        + b"</sixfold:Manifest></rdf:Description>"
    )
    return head + ours + end + tail


def read_text(packet: bytes) -> str | None:
    match = _OURS.search(packet)
    return None if match is None else text_of(unescaped(match[1]))


def escaped(text: str) -> str:
    """Escape text for use between two tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescaped(raw: bytes) -> bytes:
    """Reverse `escaped`, also for quotes that another application wrote as entities."""
    return _ENTITY.sub(lambda match: _ENTITIES.get(match[1]) or _NUMBERS[match[1]], raw)
