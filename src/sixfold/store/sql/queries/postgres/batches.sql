-- name: batch_lines_claim | Lease the next lines of a batch to this server, skipping locked rows.
UPDATE batch_line SET state = 'running', holder = :holder, lease_until = :now + :lease
WHERE batch_id = :batch_id AND number IN (
    SELECT l.number FROM batch_line l WHERE l.batch_id = :batch_id AND l.state = 'pending' AND l.ready_at <= :now
    ORDER BY l.tries, l.number LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING number, custom_id, start, length, tries, attempt;
