"""An account's pages in memory, for search: postings, order, links and vectors behind core's port."""
