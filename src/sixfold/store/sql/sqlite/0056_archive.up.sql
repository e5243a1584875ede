-- Adds the archive of expired records, the closing balances of archived ledger entries, and leases of sweeps.
-- `blob` is NULL until a segment is sealed; the file `staged` is deleted by the next sweep. An entry of the ledger can
-- be deleted only after the segment that contains it was sealed in the same transaction or before.
CREATE TABLE archive_segment (
    number     INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    blob       TEXT,
    staged     TEXT,
    records    INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    first_id   TEXT NOT NULL,
    last_id    TEXT NOT NULL,
    until      INTEGER NOT NULL,
    erased     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX archive_segment_staged ON archive_segment (number) WHERE staged IS NOT NULL;
CREATE INDEX archive_segment_ledger ON archive_segment (until) WHERE kind = 'ledger' AND blob IS NOT NULL;

CREATE TABLE archive_account (
    account_id TEXT NOT NULL,
    segment    INTEGER NOT NULL REFERENCES archive_segment (number),
    is_erasing INTEGER NOT NULL DEFAULT 0 CHECK (is_erasing IN (0, 1)),
    PRIMARY KEY (account_id, segment)
) STRICT;
CREATE INDEX archive_account_erasing ON archive_account (segment) WHERE is_erasing = 1;

CREATE TABLE closing_balance (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    balance    INTEGER NOT NULL,
    entries    INTEGER NOT NULL
) STRICT;

CREATE TABLE sweep_lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;

DROP TRIGGER transfer_stays;
CREATE TRIGGER transfer_stays BEFORE DELETE ON transfer
WHEN OLD.hold_id IS NULL
    OR OLD.created_at > COALESCE((SELECT MAX(until) FROM archive_segment WHERE kind = 'ledger' AND blob IS NOT NULL), -1)
BEGIN SELECT RAISE(ABORT, 'a transfer is never deleted before it is archived'); END;
