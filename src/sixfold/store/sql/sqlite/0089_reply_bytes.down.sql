DROP TRIGGER idempotency_deleted;
DROP TRIGGER idempotency_stored;
DROP INDEX idempotency_account;
ALTER TABLE idempotency DROP COLUMN size;
ALTER TABLE idempotency DROP COLUMN account_id;
ALTER TABLE storage_usage DROP COLUMN reply_bytes;
