-- Adds the bytes of each account's stored responses, so that all servers count them together.
ALTER TABLE storage_usage ADD COLUMN reply_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE idempotency ADD COLUMN account_id TEXT REFERENCES account (id);
ALTER TABLE idempotency ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
CREATE INDEX idempotency_account ON idempotency (account_id);

CREATE TRIGGER idempotency_stored AFTER UPDATE OF size ON idempotency WHEN NEW.size <> OLD.size
BEGIN
    INSERT INTO storage_usage (account_id, reply_bytes) VALUES (NEW.account_id, NEW.size - OLD.size)
    ON CONFLICT (account_id) DO UPDATE SET reply_bytes = reply_bytes + excluded.reply_bytes;
END;
CREATE TRIGGER idempotency_deleted AFTER DELETE ON idempotency WHEN OLD.size > 0
BEGIN
    UPDATE storage_usage SET reply_bytes = reply_bytes - OLD.size WHERE account_id = OLD.account_id;
END;
