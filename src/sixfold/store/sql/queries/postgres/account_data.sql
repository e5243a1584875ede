-- name: erase_outbox | Delete webhook deliveries about an account's predictions, using the collation of the outbox's index.
DELETE FROM webhook_outbox
WHERE prediction_id IN (SELECT id COLLATE "default" FROM prediction WHERE account_id = :account_id);

-- name: erase_timelines | Delete the timeline entries of an account's pages; an array avoids a scan of the whole index.
DELETE FROM timeline_entry WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));

-- name: erase_links | Delete the links of an account's pages; an array avoids a scan of the whole index.
DELETE FROM page_link WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));

-- name: export_predictions | Return the next predictions of an account, oldest first, until they have a number of bytes.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
    SELECT id, parent_id, face, model, engine, engine_version, quality, state,
           CASE WHEN withheld = 1 THEN '{}' ELSE inputs END AS inputs, CASE WHEN withheld = 0 THEN output END AS output,
           error, cost, charge,
           created_at, started_at, completed_at,
           COALESCE(OCTET_LENGTH(inputs), 0) + COALESCE(OCTET_LENGTH(output), 0) AS bytes
    FROM prediction WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY id;

-- name: export_calls | Return the next gateway calls of an account, oldest first, until they have a number of bytes.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
    SELECT id, key_id, face, model, target, state, input_tokens, cached_tokens, output_tokens, cost, error,
           request, response, created_at, ended_at,
           (SELECT ended.charge FROM relay_call ended WHERE ended.id = relay_known.id) AS charge,
           COALESCE(OCTET_LENGTH(request), 0) + COALESCE(OCTET_LENGTH(response), 0) AS bytes
    FROM relay_known WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY id;

-- name: export_responses | Return the next stored responses of an account, ordered by id, until they have a number of bytes.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
    SELECT id, previous, server, conversation, input, response, created_at,
           COALESCE(OCTET_LENGTH(input), 0) + COALESCE(OCTET_LENGTH(response), 0) AS bytes FROM relay_response
    WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY id;

-- name: export_conversation_items | Return the next items of an account's conversations, until they have a number of bytes; `id` has a conversation and a place.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY conversation_id, place) - bytes AS bytes_before FROM (
    SELECT conversation_id || '/' || place AS id, conversation_id, place, item, detail,
           COALESCE(OCTET_LENGTH(item), 0) + COALESCE(OCTET_LENGTH(detail), 0) AS bytes FROM relay_conversation_item
    WHERE account_id = :account_id
      AND (conversation_id, place) > (:parent_id, :number)
    ORDER BY conversation_id, place LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY conversation_id, place;

-- name: export_audit | Return the next entries of an account's audit log, oldest first, until they have a number of bytes.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
    SELECT id, action, detail, created_at,
           COALESCE(OCTET_LENGTH(detail), 0) AS bytes FROM audit
    WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY id;
