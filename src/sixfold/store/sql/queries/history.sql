-- name: history_window | Return the filterable fields of an account's predictions before an id, newest first; with `texts`, also the beginning of the inputs.
{filterable_predictions}
-- With `account_id = :account_id`, PostgreSQL may read the newer predictions of all other accounts by id.
WHERE account_id >= :account_id AND (account_id, id) < (:account_id, :before)
ORDER BY account_id DESC, id DESC LIMIT :limit;

-- name: history_window_of_credential | Return the rows of `history_window` of one credential.
{filterable_predictions}
WHERE credential_id = :credential_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: history_entries | Return predictions of `ids` (a JSON array) for a list: the beginnings of inputs and of texts instead of all.
SELECT id, account_id, credential_id, model, state, quality, output_kind, cost, list_price, error, created_at, completed_at,
       CASE WHEN withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs,
       CASE WHEN withheld = 0 AND output_kind IN ('text', 'json') THEN substr(output, 1, 600) END AS output
FROM prediction WHERE id {in :ids};

-- name: history_files | Return the unexpired output files of predictions of `ids`, a JSON array.
SELECT prediction_id, name, content_type, size, created_at FROM media
WHERE prediction_id {in :ids} AND kind = 'output'
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY prediction_id DESC, name LIMIT :limit;

-- name: history_parts | Return the parts of predictions of `ids` (a JSON array), oldest first.
SELECT id, parent_id, model, state FROM prediction
WHERE parent_id {in :ids} ORDER BY parent_id, id LIMIT :limit;

-- name: run_parts | Return the succeeded parts of a prediction with their costs, oldest first.
SELECT id, model, cost FROM prediction WHERE parent_id = :parent_id AND state = 'succeeded' ORDER BY id LIMIT :limit;

-- name: history_sessions | Return an account's live sessions between two ids, newest first.
SELECT id, model, inputs, state, reason, cost, list_rate, created_at, ready_at, closed_at FROM session
WHERE account_id = :account_id AND id < :before AND id > :after
  AND (:credential_id = '' OR credential_id = :credential_id) AND (:model = '' OR model = :model)
ORDER BY id DESC LIMIT :limit;

-- name: history_sessions_by_id | Return an account's live sessions of `ids`, a JSON array.
SELECT id, model, inputs, state, reason, cost, list_rate, created_at, ready_at, closed_at FROM session
WHERE id {in :ids} AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: history_recordings | Return the latest succeeded recording of each live session of `sessions`, a JSON array of objects with two ids between which it was created and a pattern for its inputs.
SELECT s.value ->> 'id' AS session_id, p.id FROM {items :sessions} AS s
JOIN prediction p ON p.id = (
    SELECT r.id FROM prediction r
    WHERE r.account_id = :account_id AND r.id > s.value ->> 'after' AND r.id < s.value ->> 'before' AND r.model = 'live-recording'
      AND r.state = 'succeeded' AND r.withheld = 0 AND r.inputs LIKE s.value ->> 'pattern'
      AND (:credential_id = '' OR r.credential_id = :credential_id)
    ORDER BY r.id DESC LIMIT 1);

-- name: history_unfinished | Return one prediction that has not ended among a prediction and its parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
SELECT id FROM prediction
WHERE id IN (SELECT id FROM below) AND state NOT IN ('succeeded', 'failed', 'canceled', 'expired') LIMIT 1;

-- name: history_delete_messages | Delete the webhook deliveries about predictions of `ids` (a JSON array) and their parts at any depth.
{below :ids}
DELETE FROM webhook_outbox WHERE prediction_id IN (SELECT id FROM below);

-- name: history_delete_files | Mark the files of predictions of `ids` (a JSON array) and their parts as expired, so that the sweep deletes their bytes.
{below :ids}
UPDATE media SET expires_at = :now, prediction_id = NULL WHERE {is_below prediction_id};

-- name: history_delete_prompts | Forget that predictions of `ids` (a JSON array) and their parts were removed from the workflow history.
{below :ids}
DELETE FROM graph_forgotten WHERE (account_id, prediction_id) IN (
    SELECT p.account_id, p.id FROM prediction p JOIN below b ON p.id = b.id);

-- name: history_delete_shares | End the shares of predictions of `ids` (a JSON array) and their parts.
{below :ids}
DELETE FROM share WHERE (account_id, kind, object_id) IN (
    SELECT p.account_id, 'run', p.id FROM prediction p JOIN below b ON p.id = b.id);

-- name: history_delete_predictions | Delete predictions of `ids` (a JSON array) and their parts at any depth.
{below :ids}
DELETE FROM prediction WHERE {is_below id};

-- name: retention_predictions | Return predictions between two ids, oldest first; `due` is 1 if one can be deleted with its parts.
SELECT p.id, p.account_id,
       CASE WHEN p.parent_id IS NULL AND (p.model <> 'training' OR p.state <> 'succeeded')
            AND p.state IN ('succeeded', 'failed', 'canceled', 'expired')
            AND (SELECT c.id FROM prediction c WHERE c.parent_id = p.id
                 AND c.state NOT IN ('succeeded', 'failed', 'canceled', 'expired') LIMIT 1) IS NULL
            AND NOT EXISTS (SELECT 1 FROM share s WHERE s.account_id = p.account_id AND s.kind = 'run'
                            AND s.object_id = p.id AND (s.expires_at IS NULL OR s.expires_at > :now))
            AND NOT EXISTS (SELECT 1 FROM hold h WHERE h.id = p.id AND h.state = 'pending')
            THEN 1 ELSE 0 END AS due
FROM prediction p WHERE p.id > :after AND p.id < :before ORDER BY p.id LIMIT :limit;

-- name: retention_sessions | Return live sessions between two ids, oldest first; `due` is 1 for one that has ended.
SELECT id, account_id, CASE WHEN closed_at IS NULL THEN 0 ELSE 1 END AS due
FROM session WHERE id > :after AND id < :before ORDER BY id LIMIT :limit;

-- name: retention_standings_delete | Delete the saved states of live sessions of `ids`, a JSON array.
DELETE FROM session_standing WHERE session_id {in :ids};

-- name: retention_sessions_delete | Delete live sessions of `ids`, a JSON array.
DELETE FROM session WHERE id {in :ids};

-- name: retention_audit | Return audit entries between two ids, oldest first; `due` is always 1.
SELECT id, account_id, 1 AS due FROM audit WHERE id > :after AND id < :before ORDER BY id LIMIT :limit;

-- name: retention_audit_delete | Delete audit entries of `ids`, a JSON array.
DELETE FROM audit WHERE id {in :ids};

-- name: media_origins | Return the file names of an account's media files of `names` (a JSON array), and the inputs of the runs that generated them.
SELECT m.name, m.file_name, CASE WHEN p.withheld = 0 THEN substr(p.inputs, 1, 4000) ELSE '' END AS inputs
FROM media m LEFT JOIN prediction p ON p.id = m.prediction_id AND m.kind = 'output'
WHERE m.name {in :names} AND m.account_id = :account_id;
