-- name: outbox_claim | Lease due webhook deliveries, oldest first, skipping locked rows.
UPDATE webhook_outbox SET attempts = attempts + 1, due_at = :now + :lease
WHERE id IN (SELECT id FROM webhook_outbox WHERE ended_at IS NULL AND due_at <= :now
             ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING *, CAST(:now AS BIGINT) AS now;
