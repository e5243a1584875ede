-- name: trainings_to_adopt | Return an account's succeeded trainings without a custom model, oldest first.
SELECT p.* FROM prediction p
WHERE p.account_id = :account_id AND p.model = 'training' AND p.state = 'succeeded'
  AND NOT EXISTS (
      SELECT 1 FROM own_model m
      WHERE m.account_id = p.account_id AND m.kind = 'custom' AND REPLACE(m.document, p.id, '') <> m.document)
ORDER BY p.completed_at, p.id;
