"""The first of the applications alone, as a space of this machine."""

from __future__ import annotations

from app import painting

painting().launch()
