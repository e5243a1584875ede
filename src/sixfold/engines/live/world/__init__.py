"""An explorable landscape, rendered by columns."""
