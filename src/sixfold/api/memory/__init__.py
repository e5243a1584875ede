"""Area D, the memory: pages, links, timelines, search, files in and out; coded errors."""
