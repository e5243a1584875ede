"""Sizes and durations as text for users."""

from __future__ import annotations


def size(count: int) -> str:
    """Format bytes in powers of 1000: `812 B`, `1.4 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.0f} GB" if amount >= 100 else f"{amount:.1f} GB"


def limit(max_bytes: int) -> str:
    """Format a limit in bytes: `32 MiB`, `800 bytes`."""
    return f"{max_bytes / 2**20:.4g} MiB" if max_bytes >= 2**20 else f"{max_bytes} bytes"


def count(number: int, noun: str) -> str:
    """Return a number with a noun that has a regular plural: `1 node`, `2 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds_text(seconds: float) -> str:
    """Format seconds with the unit in full: `1 second`, `0.2 seconds`, `3 seconds`."""
    return f"{seconds:g} {'second' if seconds == 1 else 'seconds'}"


def duration(ms: float) -> str:
    """Format a measured duration: `0.3 ms`, `41 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s" if remainder else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def roughly(seconds: float) -> str:
    """Format an estimated duration with at most two digits: `40 ms`, `1.2 s`, `12 s`, `3 min`."""
    tens_of_ms = round(seconds * 100)
    if tens_of_ms < 100:
        return f"{max(1, tens_of_ms) * 10} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
