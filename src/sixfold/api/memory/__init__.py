"""The Memory API: pages, links, timelines, search, import and export."""
