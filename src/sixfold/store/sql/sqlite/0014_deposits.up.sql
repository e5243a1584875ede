-- Adds deposits of tokens.
-- Tokens that come by chain: an address for each account, and how far each chain has been read.
CREATE TABLE deposit_address (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    number     INTEGER NOT NULL UNIQUE,
    address    TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE deposit_scan (
    chain TEXT PRIMARY KEY,
    block INTEGER NOT NULL
) STRICT;
