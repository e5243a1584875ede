"""Files and archives of pages, in and out."""
