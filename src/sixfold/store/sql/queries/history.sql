-- name: history_window | Return the filterable fields of an account's predictions before an id, newest first; with `texts`, also the beginning of the inputs.
SELECT id, parent_id, model, state, meter, output_kind, created_at,
       CASE WHEN :texts = 1 AND withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs
FROM prediction
WHERE account_id = :account_id AND id < :before AND (:credential_id = '' OR credential_id = :credential_id)
ORDER BY id DESC LIMIT :limit;

-- name: history_entries | Return predictions of `ids` (a JSON array) for a list: the beginnings of inputs and of texts instead of all.
SELECT id, account_id, credential_id, model, state, quality, output_kind, cost, list_price, error, created_at, completed_at,
       CASE WHEN withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs,
       CASE WHEN withheld = 0 AND output_kind IN ('text', 'json') THEN substr(output, 1, 600) END AS output
FROM prediction WHERE id IN (SELECT value FROM json_each(:ids));

-- name: history_files | Return the unexpired output files of predictions of `ids`, a JSON array.
SELECT prediction_id, name, content_type, size, created_at FROM media
WHERE prediction_id IN (SELECT value FROM json_each(:ids)) AND kind = 'output'
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY prediction_id DESC, name LIMIT :limit;

-- name: history_parts | Return the parts of predictions of `ids` (a JSON array), oldest first.
SELECT id, parent_id, model, state FROM prediction
WHERE parent_id IN (SELECT value FROM json_each(:ids)) ORDER BY parent_id, id LIMIT :limit;

-- name: history_sessions | Return an account's live sessions between two ids, newest first.
SELECT id, model, inputs, state, reason, cost, list_rate, created_at, ready_at, closed_at FROM session
WHERE account_id = :account_id AND id < :before AND id > :after
  AND (:credential_id = '' OR credential_id = :credential_id) AND (:model = '' OR model = :model)
ORDER BY id DESC LIMIT :limit;

-- name: history_unfinished | Return one prediction that has not ended among a prediction and its parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
SELECT id FROM prediction
WHERE id IN (SELECT id FROM below) AND state NOT IN ('succeeded', 'failed', 'canceled', 'expired') LIMIT 1;

-- name: history_delete_messages | Delete the webhook deliveries about a prediction and its parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
DELETE FROM webhook_outbox WHERE prediction_id IN (SELECT id FROM below);

-- name: history_delete_files | Mark the files of a prediction and its parts as expired, so that the sweep deletes their bytes.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
UPDATE media SET expires_at = :now, prediction_id = NULL WHERE prediction_id IN (SELECT id FROM below);

-- name: history_delete_prompts | Forget that a prediction and its parts were removed from the workflow history.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
DELETE FROM graph_forgotten WHERE account_id = :account_id AND prediction_id IN (SELECT id FROM below);

-- name: history_delete_predictions | Delete a prediction and its parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
DELETE FROM prediction WHERE id IN (SELECT id FROM below);
