"""`organization`, `member` and `team`: manage accounts that several users share."""
