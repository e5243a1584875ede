-- Adds the bytes of each account's stored responses, so that all servers count them together.
ALTER TABLE storage_usage ADD COLUMN reply_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE idempotency ADD COLUMN account_id TEXT COLLATE "C" REFERENCES account (id);
ALTER TABLE idempotency ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
CREATE INDEX idempotency_account ON idempotency (account_id);

CREATE FUNCTION storage_usage_reply() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_usage (account_id, reply_bytes) VALUES (NEW.account_id, NEW.size - OLD.size)
    ON CONFLICT (account_id) DO UPDATE SET reply_bytes = storage_usage.reply_bytes + excluded.reply_bytes;
    RETURN NULL;
END $$;
CREATE FUNCTION storage_usage_reply_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE storage_usage SET reply_bytes = reply_bytes - OLD.size WHERE account_id = OLD.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER idempotency_stored AFTER UPDATE OF size ON idempotency
FOR EACH ROW WHEN (NEW.size <> OLD.size) EXECUTE FUNCTION storage_usage_reply();
CREATE TRIGGER idempotency_deleted AFTER DELETE ON idempotency
FOR EACH ROW WHEN (OLD.size > 0) EXECUTE FUNCTION storage_usage_reply_deleted();
