-- Adds the bytes of each account's free runs and cached node outputs, so that admission does not sum them.
CREATE TABLE storage_usage (
    account_id   TEXT COLLATE "C" PRIMARY KEY REFERENCES account (id),
    free_bytes   BIGINT NOT NULL DEFAULT 0,
    cached_bytes BIGINT NOT NULL DEFAULT 0
);
INSERT INTO storage_usage (account_id, free_bytes)
SELECT account_id, SUM(stored_bytes) FROM prediction WHERE price = 0 AND stored_bytes > 0 GROUP BY account_id;
DROP INDEX prediction_free_bytes;
ALTER TABLE media ADD COLUMN is_cached BIGINT NOT NULL DEFAULT 0;
ALTER TABLE graph_outcome ADD COLUMN size BIGINT NOT NULL DEFAULT 0;

-- No trigger adds what an INSERT stores: a restored backup has the sums already.
CREATE FUNCTION storage_usage_free() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_usage (account_id, free_bytes)
    VALUES (NEW.account_id, NEW.stored_bytes - OLD.stored_bytes)
    ON CONFLICT (account_id) DO UPDATE SET free_bytes = storage_usage.free_bytes + excluded.free_bytes;
    RETURN NULL;
END $$;
CREATE FUNCTION storage_usage_free_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE storage_usage SET free_bytes = free_bytes - OLD.stored_bytes WHERE account_id = OLD.account_id;
    RETURN NULL;
END $$;
CREATE FUNCTION storage_usage_cached_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE storage_usage SET cached_bytes = cached_bytes - OLD.size WHERE account_id = OLD.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER prediction_stored AFTER UPDATE OF stored_bytes ON prediction
FOR EACH ROW WHEN (NEW.price = 0 AND NEW.stored_bytes <> OLD.stored_bytes) EXECUTE FUNCTION storage_usage_free();
CREATE TRIGGER prediction_deleted AFTER DELETE ON prediction
FOR EACH ROW WHEN (OLD.price = 0 AND OLD.stored_bytes > 0) EXECUTE FUNCTION storage_usage_free_deleted();
CREATE TRIGGER graph_outcome_replaced AFTER UPDATE OF size ON graph_outcome
FOR EACH ROW WHEN (OLD.size > 0) EXECUTE FUNCTION storage_usage_cached_deleted();
CREATE TRIGGER graph_outcome_deleted AFTER DELETE ON graph_outcome
FOR EACH ROW WHEN (OLD.size > 0) EXECUTE FUNCTION storage_usage_cached_deleted();
CREATE TRIGGER media_cached_deleted AFTER DELETE ON media
FOR EACH ROW WHEN (OLD.is_cached = 1) EXECUTE FUNCTION storage_usage_cached_deleted();
