-- name: erase_outbox | Messages about predictions, whose ids are collated as the outbox's index is.
DELETE FROM webhook_outbox
WHERE prediction_id IN (SELECT id COLLATE "default" FROM prediction WHERE account_id = :account_id);
