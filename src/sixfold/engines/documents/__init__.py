"""Text of documents: PDF, DOCX, HTML, EPUB and plain text as Markdown."""
