"""Background removal from videos, with edges that are stable over time."""
