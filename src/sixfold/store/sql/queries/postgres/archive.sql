-- name: archive_predictions | Return all columns of predictions of `ids` (a JSON array) and of their parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
SELECT * FROM prediction WHERE id = ANY (ARRAY(SELECT id FROM below)) ORDER BY id;

-- name: archive_media | Return the files of predictions of `ids` (a JSON array) and of their parts, without their bytes.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
SELECT name, account_id, prediction_id, kind, content_type, size, sha256, blob, created_at, expires_at
FROM media WHERE prediction_id = ANY (ARRAY(SELECT id FROM below)) ORDER BY name;

-- name: archive_sessions | Return all columns of live sessions of `ids`, a JSON array.
SELECT * FROM session WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY id;

-- name: archive_audit | Return all columns of audit entries of `ids`, a JSON array.
SELECT * FROM audit WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY id;

-- name: archive_calls | Return all columns of gateway calls of `ids`, a JSON array.
SELECT * FROM relay_call WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY id;

-- name: archive_operators | Return all columns of what operators did of `ids`, a JSON array.
SELECT *, actor_id AS account_id FROM operator_action
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY id;

-- name: archive_charges | Return charges of `ids` (a JSON array) with their holds.
SELECT t.id, t.debit, t.credit, t.amount, t.hold_id, t.kind, t.description, t.request_id, t.charge, t.created_at,
       h.amount AS held, h.created_at AS held_at, h.key_id
FROM transfer t JOIN hold h ON h.id = t.hold_id
WHERE t.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY t.created_at, t.id;

-- name: closing_balances | Return the closing balances of accounts of `ids`, a JSON array.
SELECT account_id, balance, entries FROM closing_balance
WHERE account_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));
