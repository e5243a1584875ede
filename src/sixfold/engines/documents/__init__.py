"""Text of documents: PDF, DOCX, HTML, EPUB, canvases and plain text as Markdown."""
