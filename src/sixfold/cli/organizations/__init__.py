"""`organization`, `member` and `team`: several persons who share an account."""
