-- Adds the ids of prompts and of adopted trainings, and indexes that hold only the open rows of an account.
ALTER TABLE prediction ADD COLUMN prompt_id TEXT COLLATE "C";
UPDATE prediction SET prompt_id = COALESCE(task::json #>> '{inputs,prompt_id}', id) WHERE model = 'comfyui-prompt';
-- The previous version, which may still run, does not set the id.
CREATE FUNCTION prediction_prompt_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.prompt_id := COALESCE(NEW.task::json #>> '{inputs,prompt_id}', NEW.id);
    RETURN NEW;
END $$;
CREATE TRIGGER prediction_prompt_named BEFORE INSERT ON prediction FOR EACH ROW
WHEN (NEW.model = 'comfyui-prompt' AND NEW.prompt_id IS NULL) EXECUTE FUNCTION prediction_prompt_named();
ALTER TABLE own_model ADD COLUMN training_id TEXT COLLATE "C";
UPDATE own_model SET training_id = document::json ->> 'training' WHERE kind = 'custom';
CREATE INDEX prediction_prompt ON prediction (account_id, prompt_id, id) WHERE prompt_id IS NOT NULL;
CREATE INDEX prediction_prompts ON prediction (account_id, id) WHERE prompt_id IS NOT NULL;
CREATE INDEX own_model_training ON own_model (account_id, training_id) WHERE training_id IS NOT NULL;
CREATE INDEX session_unended ON session (account_id, id) WHERE closed_at IS NULL;
CREATE INDEX batch_unended ON batch (account_id) WHERE ended_at IS NULL;
CREATE INDEX batch_listed ON batch (account_id, dialect, id) WHERE response_id IS NULL;
CREATE INDEX file_upload_pending ON file_upload (account_id) WHERE state = 'pending';
CREATE INDEX account_file_usage ON account_file (account_id, expires_at, size);
CREATE INDEX memory_batch_remembered ON memory_batch (account_id, id) WHERE kind = 'remember';
DROP INDEX media_account;
CREATE INDEX media_account ON media (account_id, name);
CREATE INDEX media_uploads ON media (account_id, upload_id, expires_at, size) WHERE kind = 'upload';
DROP INDEX api_key_live;
CREATE INDEX api_key_live ON api_key (account_id, created_at, id) WHERE revoked_at IS NULL;
DROP INDEX shared_folder_limited;
CREATE INDEX shared_folder_limited ON shared_folder (id) WHERE credential_id <> '' OR key_id IS NOT NULL;

-- A trigger for each row changes the row of an account once for each deleted row, and PostgreSQL searches all
-- versions of a row that one transaction has changed: this took more than 20 s for 50,000 rows.
CREATE FUNCTION storage_usage_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'UPDATE storage_usage u SET %1$I = u.%1$I - d.size FROM '
        '(SELECT e.account_id, SUM(e.%2$I) AS size FROM (TABLE deleted) AS e WHERE %3$s GROUP BY e.account_id) AS d '
        'WHERE u.account_id = d.account_id', TG_ARGV[0], TG_ARGV[1], TG_ARGV[2]);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER prediction_deleted AFTER DELETE ON prediction REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION
    storage_usage_deleted('free_bytes', 'stored_bytes', 'e.price = 0 AND e.stored_bytes > 0');
CREATE OR REPLACE TRIGGER graph_outcome_deleted AFTER DELETE ON graph_outcome REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION storage_usage_deleted('cached_bytes', 'size', 'e.size > 0');
CREATE OR REPLACE TRIGGER media_cached_deleted AFTER DELETE ON media REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION storage_usage_deleted('cached_bytes', 'size', 'e.is_cached = 1');
CREATE OR REPLACE TRIGGER idempotency_deleted AFTER DELETE ON idempotency REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION storage_usage_deleted('reply_bytes', 'size', 'e.size > 0');
