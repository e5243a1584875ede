-- name: idempotency_adopt | Take over a claim whose server died before it answered.
UPDATE idempotency SET boot = :boot
WHERE id = :id AND boot = :old_boot AND status IS NULL AND NOT server_lives(:old_boot) RETURNING id;
