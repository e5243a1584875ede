"""Pages of shares: what a link shows to everyone, and the forms of its owner."""
