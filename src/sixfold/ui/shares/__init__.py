"""Pages of shares: the public page of a link, and the forms of its owner."""
