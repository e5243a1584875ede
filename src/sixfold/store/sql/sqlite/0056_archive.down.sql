DROP TRIGGER transfer_stays;
CREATE TRIGGER transfer_stays BEFORE DELETE ON transfer
BEGIN SELECT RAISE(ABORT, 'a transfer is never deleted'); END;
DROP TABLE sweep_lease;
DROP TABLE closing_balance;
DROP TABLE archive_account;
DROP TABLE archive_segment;
