-- Adds the archive of expired records, the closing balances of archived ledger entries, and leases of sweeps.
-- `blob` is NULL until a segment is sealed; the file `staged` is deleted by the next sweep. An entry of the ledger can
-- be deleted only after the segment that contains it was sealed in the same transaction or before.
CREATE TABLE archive_segment (
    number     BIGINT PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL,
    blob       TEXT COLLATE "C",
    staged     TEXT COLLATE "C",
    records    BIGINT NOT NULL,
    size       BIGINT NOT NULL,
    first_id   TEXT COLLATE "C" NOT NULL,
    last_id    TEXT COLLATE "C" NOT NULL,
    until      BIGINT NOT NULL,
    erased     BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);
CREATE INDEX archive_segment_staged ON archive_segment (number) WHERE staged IS NOT NULL;
CREATE INDEX archive_segment_ledger ON archive_segment (until) WHERE kind = 'ledger' AND blob IS NOT NULL;

CREATE TABLE archive_account (
    account_id TEXT COLLATE "C" NOT NULL,
    segment    BIGINT NOT NULL REFERENCES archive_segment (number),
    is_erasing BIGINT NOT NULL DEFAULT 0 CHECK (is_erasing IN (0, 1)),
    PRIMARY KEY (account_id, segment)
);
CREATE INDEX archive_account_erasing ON archive_account (segment) WHERE is_erasing = 1;

CREATE TABLE closing_balance (
    account_id TEXT COLLATE "C" PRIMARY KEY REFERENCES account (id),
    balance    BIGINT NOT NULL,
    entries    BIGINT NOT NULL
);

CREATE TABLE sweep_lease (
    name        TEXT COLLATE "C" PRIMARY KEY,
    holder      TEXT COLLATE "C" NOT NULL,
    lease_until BIGINT NOT NULL
);

CREATE OR REPLACE FUNCTION transfer_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.hold_id IS NOT NULL AND OLD.created_at <=
                (SELECT MAX(until) FROM archive_segment WHERE kind = 'ledger' AND blob IS NOT NULL) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;
