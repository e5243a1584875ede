-- name: trainings_to_adopt | Return an account's succeeded trainings without a custom model, oldest first.
SELECT p.* FROM prediction p
WHERE p.account_id = :account_id AND p.model = 'training' AND p.state = 'succeeded'
  AND NOT EXISTS (
      SELECT 1 FROM own_model m
      WHERE m.account_id = p.account_id AND m.kind = 'custom' AND REPLACE(m.document, p.id, '') <> m.document)
ORDER BY p.completed_at, p.id;

-- name: training_model | Return the name of a custom model that uses the files of a training.
SELECT m.name FROM own_model m
WHERE m.account_id = :account_id AND m.kind = 'custom' AND m.removed_at IS NULL
  AND REPLACE(m.document, :id, '') <> m.document LIMIT 1;

-- name: trainings_of_removed | Return the trainings of a removed custom model, unless another model uses them.
SELECT p.id FROM prediction p
WHERE p.account_id = :account_id AND p.model = 'training' AND p.state = 'succeeded'
  AND EXISTS (SELECT 1 FROM own_model m
              WHERE m.account_id = p.account_id AND m.kind = 'custom' AND m.name = :name
                AND REPLACE(m.document, p.id, '') <> m.document)
  AND NOT EXISTS (SELECT 1 FROM own_model m
                  WHERE m.account_id = p.account_id AND m.kind = 'custom' AND m.removed_at IS NULL
                    AND REPLACE(m.document, p.id, '') <> m.document);
