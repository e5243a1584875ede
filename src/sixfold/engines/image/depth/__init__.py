"""How near each part of a picture is, and what can be shown of it."""
