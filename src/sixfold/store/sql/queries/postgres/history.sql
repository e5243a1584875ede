-- name: history_entries | Return predictions of `ids` (a JSON array) for a list: the beginnings of inputs and of texts instead of all.
SELECT id, account_id, credential_id, model, state, quality, output_kind, cost, list_price, error, created_at, completed_at,
       CASE WHEN withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs,
       CASE WHEN withheld = 0 AND output_kind IN ('text', 'json') THEN substr(output, 1, 600) END AS output
FROM prediction WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: history_files | Return the unexpired output files of predictions of `ids`, a JSON array.
SELECT prediction_id, name, content_type, size, created_at FROM media
WHERE prediction_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND kind = 'output'
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY prediction_id DESC, name LIMIT :limit;

-- name: history_parts | Return the parts of predictions of `ids` (a JSON array), oldest first.
SELECT id, parent_id, model, state FROM prediction
WHERE parent_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY parent_id, id LIMIT :limit;

-- name: history_delete_files | Mark the files of a prediction and its parts as expired, so that the sweep deletes their bytes.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
UPDATE media SET expires_at = :now, prediction_id = NULL WHERE prediction_id = ANY (ARRAY(SELECT id FROM below));

-- name: history_delete_messages | Delete the webhook deliveries about a prediction and its parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
DELETE FROM webhook_outbox WHERE prediction_id = ANY (ARRAY(SELECT id FROM below));
