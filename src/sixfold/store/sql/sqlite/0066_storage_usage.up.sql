-- Adds the bytes of each account's free runs and cached node outputs, so that admission does not sum them.
CREATE TABLE storage_usage (
    account_id   TEXT PRIMARY KEY REFERENCES account (id),
    free_bytes   INTEGER NOT NULL DEFAULT 0,
    cached_bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO storage_usage (account_id, free_bytes)
SELECT account_id, SUM(stored_bytes) FROM prediction WHERE price = 0 AND stored_bytes > 0 GROUP BY account_id;
DROP INDEX prediction_free_bytes;
ALTER TABLE media ADD COLUMN is_cached INTEGER NOT NULL DEFAULT 0;
ALTER TABLE graph_outcome ADD COLUMN size INTEGER NOT NULL DEFAULT 0;

-- No trigger adds what an INSERT stores: a restored backup has the sums already.
CREATE TRIGGER prediction_stored AFTER UPDATE OF stored_bytes ON prediction
WHEN NEW.price = 0 AND NEW.stored_bytes <> OLD.stored_bytes
BEGIN
    INSERT INTO storage_usage (account_id, free_bytes)
    VALUES (NEW.account_id, NEW.stored_bytes - OLD.stored_bytes)
    ON CONFLICT (account_id) DO UPDATE SET free_bytes = free_bytes + excluded.free_bytes;
END;
CREATE TRIGGER prediction_deleted AFTER DELETE ON prediction WHEN OLD.price = 0 AND OLD.stored_bytes > 0
BEGIN
    UPDATE storage_usage SET free_bytes = free_bytes - OLD.stored_bytes WHERE account_id = OLD.account_id;
END;
CREATE TRIGGER graph_outcome_replaced AFTER UPDATE OF size ON graph_outcome WHEN OLD.size > 0
BEGIN
    UPDATE storage_usage SET cached_bytes = cached_bytes - OLD.size WHERE account_id = OLD.account_id;
END;
CREATE TRIGGER graph_outcome_deleted AFTER DELETE ON graph_outcome WHEN OLD.size > 0
BEGIN
    UPDATE storage_usage SET cached_bytes = cached_bytes - OLD.size WHERE account_id = OLD.account_id;
END;
CREATE TRIGGER media_cached_deleted AFTER DELETE ON media WHEN OLD.is_cached = 1
BEGIN
    UPDATE storage_usage SET cached_bytes = cached_bytes - OLD.size WHERE account_id = OLD.account_id;
END;
