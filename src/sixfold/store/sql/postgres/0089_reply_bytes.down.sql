DROP TRIGGER idempotency_deleted ON idempotency;
DROP TRIGGER idempotency_stored ON idempotency;
DROP FUNCTION storage_usage_reply_deleted();
DROP FUNCTION storage_usage_reply();
DROP INDEX idempotency_account;
ALTER TABLE idempotency DROP COLUMN size;
ALTER TABLE idempotency DROP COLUMN account_id;
ALTER TABLE storage_usage DROP COLUMN reply_bytes;
