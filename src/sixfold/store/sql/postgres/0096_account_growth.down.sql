CREATE OR REPLACE TRIGGER idempotency_deleted AFTER DELETE ON idempotency
FOR EACH ROW WHEN (OLD.size > 0) EXECUTE FUNCTION storage_usage_reply_deleted();
CREATE OR REPLACE TRIGGER media_cached_deleted AFTER DELETE ON media
FOR EACH ROW WHEN (OLD.is_cached = 1) EXECUTE FUNCTION storage_usage_cached_deleted();
CREATE OR REPLACE TRIGGER graph_outcome_deleted AFTER DELETE ON graph_outcome
FOR EACH ROW WHEN (OLD.size > 0) EXECUTE FUNCTION storage_usage_cached_deleted();
CREATE OR REPLACE TRIGGER prediction_deleted AFTER DELETE ON prediction
FOR EACH ROW WHEN (OLD.price = 0 AND OLD.stored_bytes > 0) EXECUTE FUNCTION storage_usage_free_deleted();
DROP FUNCTION storage_usage_deleted();
DROP INDEX shared_folder_limited;
CREATE INDEX shared_folder_limited ON shared_folder (id) WHERE credential_id <> '';
DROP INDEX api_key_live;
CREATE INDEX api_key_live ON api_key (account_id, created_at, id)
    WHERE revoked_at IS NULL AND grant_id IS NULL AND hint <> '';
DROP INDEX media_uploads;
DROP INDEX media_account;
CREATE INDEX media_account ON media (account_id, kind);
DROP INDEX memory_batch_remembered;
DROP INDEX account_file_usage;
DROP INDEX file_upload_pending;
DROP INDEX batch_listed;
DROP INDEX batch_unended;
DROP INDEX session_unended;
DROP INDEX own_model_training;
ALTER TABLE own_model DROP COLUMN training_id;
DROP TRIGGER prediction_prompt_named ON prediction;
DROP FUNCTION prediction_prompt_named();
DROP INDEX prediction_prompts;
DROP INDEX prediction_prompt;
ALTER TABLE prediction DROP COLUMN prompt_id;
