-- Adds the ids of prompts and of adopted trainings, and indexes that hold only the open rows of an account.
ALTER TABLE prediction ADD COLUMN prompt_id TEXT;
UPDATE prediction SET prompt_id = COALESCE(json_extract(task, '$.inputs.prompt_id'), id) WHERE model = 'comfyui-prompt';
-- The previous version, which may still run, does not set the id.
CREATE TRIGGER prediction_prompt_named AFTER INSERT ON prediction
WHEN NEW.model = 'comfyui-prompt' AND NEW.prompt_id IS NULL
BEGIN
    UPDATE prediction SET prompt_id = COALESCE(json_extract(NEW.task, '$.inputs.prompt_id'), NEW.id)
    WHERE id = NEW.id;
END;
ALTER TABLE own_model ADD COLUMN training_id TEXT;
UPDATE own_model SET training_id = json_extract(document, '$.training') WHERE kind = 'custom';
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
