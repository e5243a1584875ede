-- Adds deposits of tokens.
-- Tokens that come by chain: an address for each account, and how far each chain has been read.
CREATE TABLE deposit_address (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    number     BIGINT NOT NULL UNIQUE,
    address    TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE deposit_scan (
    chain TEXT PRIMARY KEY,
    block BIGINT NOT NULL
);
