-- name: trainings_to_adopt | Return an account's succeeded trainings without a custom model, oldest first.
SELECT p.* FROM prediction p
WHERE p.account_id = :account_id AND p.model = 'training' AND p.state = 'succeeded'
  AND NOT EXISTS (
      SELECT 1 FROM own_model m
      WHERE m.account_id = p.account_id AND m.kind = 'custom' AND m.training_id = p.id)
ORDER BY p.completed_at, p.id;

-- name: training_model | Return the name of a custom model that uses the files of a training.
SELECT m.name FROM own_model m
WHERE m.account_id = :account_id AND m.kind = 'custom' AND m.training_id = :id AND m.removed_at IS NULL
LIMIT 1;

-- name: trainings_of_removed | Return the trainings of a removed custom model, unless another model uses them.
SELECT p.id FROM prediction p
WHERE p.account_id = :account_id AND p.model = 'training' AND p.state = 'succeeded'
  AND EXISTS (SELECT 1 FROM own_model m
              WHERE m.account_id = p.account_id AND m.kind = 'custom' AND m.name = :name
                AND m.training_id = p.id)
  AND NOT EXISTS (SELECT 1 FROM own_model m
                  WHERE m.account_id = p.account_id AND m.kind = 'custom' AND m.training_id = p.id
                    AND m.removed_at IS NULL);
