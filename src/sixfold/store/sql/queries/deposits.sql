-- name: deposit_address_of | Return an account's deposit address.
SELECT * FROM deposit_address WHERE account_id = :account_id;

-- name: deposit_next_number | Return the next unused number of a deposit address.
SELECT COALESCE(MAX(number), -1) + 1 AS number FROM deposit_address;

-- name: deposit_address_insert | Insert an account's deposit address; return no row on a conflict with a concurrent request.
INSERT INTO deposit_address (account_id, number, address, created_at)
VALUES (:account_id, :number, :address, :now)
ON CONFLICT DO NOTHING
RETURNING address;

-- name: deposit_addresses | Return all deposit addresses with their accounts.
SELECT address, account_id FROM deposit_address;

-- name: deposit_scan | Return the last block read of a chain.
SELECT block FROM deposit_scan WHERE chain = :chain;

-- name: deposit_scan_set | Update the last block read of a chain; it never decreases.
INSERT INTO deposit_scan (chain, block) VALUES (:chain, :block)
ON CONFLICT (chain) DO UPDATE SET block = :block WHERE deposit_scan.block < :block;
