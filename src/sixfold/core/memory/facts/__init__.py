"""Facts from conversations and documents, and answers from pages, with a chat model."""
