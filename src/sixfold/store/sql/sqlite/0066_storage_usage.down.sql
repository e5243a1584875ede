DROP TRIGGER media_cached_deleted;
DROP TRIGGER graph_outcome_deleted;
DROP TRIGGER graph_outcome_replaced;
DROP TRIGGER prediction_deleted;
DROP TRIGGER prediction_stored;
ALTER TABLE graph_outcome DROP COLUMN size;
ALTER TABLE media DROP COLUMN is_cached;
CREATE INDEX prediction_free_bytes ON prediction (account_id, stored_bytes) WHERE price = 0 AND stored_bytes > 0;
DROP TABLE storage_usage;
