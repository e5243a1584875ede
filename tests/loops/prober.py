"""Client that requests a path repeatedly until its standard input ends, and prints the longest wait in ms.

Usage: python prober.py PORT PATH
"""

from __future__ import annotations

import http.client
import sys
import threading
import time

INTERVAL_SECONDS = 0.01


def probe(port: int, path: str, end_event: threading.Event) -> float:
    """Return the longest response time in seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    longest = 0.0
    while not end_event.wait(INTERVAL_SECONDS):
        start = time.monotonic()
        connection.request("GET", path)
        connection.getresponse().read()
        longest = max(longest, time.monotonic() - start)
    return longest


def main() -> None:
    """Probe until the standard input ends."""
    end_event = threading.Event()
    reading = threading.Thread(target=lambda: (sys.stdin.read(), end_event.set()), daemon=True)
    reading.start()
    sys.stdout.write(f"{1000 * probe(int(sys.argv[1]), sys.argv[2], end_event):.1f}\n")


if __name__ == "__main__":
    main()
