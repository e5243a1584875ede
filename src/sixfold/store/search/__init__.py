"""In-memory search index of an account's pages: postings, order, links and vectors."""
