-- name: erase_outbox | Messages about predictions, whose ids are collated as the outbox's index is.
DELETE FROM webhook_outbox
WHERE prediction_id IN (SELECT id COLLATE "default" FROM prediction WHERE account_id = :account_id);

-- name: erase_timelines | Entries of timelines, found by an array: a join may read the whole index.
DELETE FROM timeline_entry WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));

-- name: erase_links | Links between pages, found by an array: a join may read the whole index.
DELETE FROM page_link WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));
