-- name: deposit_address_of | An account's address.
SELECT * FROM deposit_address WHERE account_id = :account_id;

-- name: deposit_next_number | The first number that no address has.
SELECT COALESCE(MAX(number), -1) + 1 AS number FROM deposit_address;

-- name: deposit_address_insert | An account's address; nothing when somebody was quicker.
INSERT INTO deposit_address (account_id, number, address, created_at)
VALUES (:account_id, :number, :address, :now)
ON CONFLICT DO NOTHING
RETURNING address;

-- name: deposit_addresses | Every address, and whose it is.
SELECT address, account_id FROM deposit_address;

-- name: deposit_scan | How far a chain has been read.
SELECT block FROM deposit_scan WHERE chain = :chain;

-- name: deposit_scan_set | A chain has been read so far.
INSERT INTO deposit_scan (chain, block) VALUES (:chain, :block)
ON CONFLICT (chain) DO UPDATE SET block = :block WHERE deposit_scan.block < :block;
