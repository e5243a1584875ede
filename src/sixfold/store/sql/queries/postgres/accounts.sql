-- name: idempotency_adopt | Transfer an unfinished idempotency claim from a stopped server to this one.
UPDATE idempotency SET boot = :boot
WHERE id = :id AND boot = :old_boot AND status IS NULL AND NOT server_lives(:old_boot) RETURNING id;
