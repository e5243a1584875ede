"""A space without a library: responses of a Gradio 6 server for one function, which may try to escape."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from voice import loud

SOUND = {"id": 2, "type": "file", "props": {"label": "File"}}
CONFIG = {
    "version": "6.31.0",
    "protocol": "sse_v3",
    "title": "Shouter",
    "api_prefix": "/gradio_api",
    "components": [{"id": 1, "type": "textbox", "props": {"label": "Words"}}, SOUND],
    "dependencies": [
        {"id": 0, "inputs": [1], "outputs": [2], "api_name": "shout", "api_visibility": "public"}
    ],
}
WORDS = {"label": "Words", "parameter_name": "words", "parameter_has_default": False, "component": "Textbox"}
INFO = {"named_endpoints": {"/shout": {"parameters": [WORDS], "returns": [{"label": "File"}]}}}
# One function at a time.
QUEUE = threading.Lock()
MADE = Path(os.environ["TMPDIR"]) / "made.txt"


def attempt(words: str) -> str:
    """Return the result of an attempt to escape, or else the words."""
    try:
        match words.split():
            case ["read", path]:
                return Path(path).read_text()
            case ["connect", port]:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
                return "connected"
            case ["die"]:
                os._exit(9)
            case ["hang"]:
                threading.Event().wait()
    except OSError as error:
        return type(error).__name__
    return loud(words)


class Gradio(BaseHTTPRequestHandler):
    """Routes of the application."""

    protocol_version = "HTTP/1.1"
    words = ""

    def do_GET(self) -> None:
        if self.path == "/config":
            self.tell(json.dumps(CONFIG).encode())
        elif self.path == "/gradio_api/info":
            self.tell(json.dumps(INFO).encode())
        elif self.path.startswith("/gradio_api/queue/data"):
            with QUEUE:
                MADE.write_text(attempt(Gradio.words))
            file = {"path": str(MADE), "orig_name": "made.txt", "meta": {"_type": "gradio.FileData"}}
            completed_event = {"msg": "process_completed", "success": True, "output": {"data": [file]}}
            self.tell(b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in (completed_event,)))
        elif self.path == f"/gradio_api/file={MADE}":
            self.tell(MADE.read_bytes(), "text/plain")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Gradio.words = str(order["data"][0])
        self.tell(json.dumps({"event_id": "E"}).encode())

    def tell(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    sys.stdout.write("awake\n")
    sys.stdout.flush()
    address = os.environ["GRADIO_SERVER_NAME"], int(os.environ["GRADIO_SERVER_PORT"])
    ThreadingHTTPServer(address, Gradio).serve_forever()
