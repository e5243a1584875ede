-- name: erase_outbox | Delete webhook deliveries about an account's predictions, using the collation of the outbox's index.
DELETE FROM webhook_outbox
WHERE prediction_id IN (SELECT id COLLATE "default" FROM prediction WHERE account_id = :account_id);

-- name: erase_timelines | Delete the timeline entries of an account's pages; an array avoids a scan of the whole index.
DELETE FROM timeline_entry WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));

-- name: erase_links | Delete the links of an account's pages; an array avoids a scan of the whole index.
DELETE FROM page_link WHERE page_id = ANY (ARRAY(SELECT id FROM page WHERE account_id = :account_id));
