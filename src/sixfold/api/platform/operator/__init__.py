"""`/api/operator`: what the operator sees of accounts and does to them."""
