-- name: custom_model_insert | A new version of an account's model.
INSERT INTO own_model (account_id, name, version, kind, document, created_at)
SELECT :account_id, :name, COALESCE(MAX(version), 0) + 1, :kind, :document, :now
FROM own_model WHERE account_id = :account_id AND name = :name
RETURNING *;

-- name: custom_model_newest | The newest version of one model of an account, unless it was removed.
SELECT * FROM own_model
WHERE account_id = :account_id AND name = :name AND removed_at IS NULL
ORDER BY version DESC LIMIT 1;

-- name: custom_model_names | The names of an account's models of a kind.
SELECT DISTINCT name FROM own_model
WHERE account_id = :account_id AND removed_at IS NULL AND kind = :kind ORDER BY name;

-- name: custom_models_beside | How many models of other names an account has.
SELECT COUNT(DISTINCT name) AS count FROM own_model
WHERE account_id = :account_id AND removed_at IS NULL AND name <> :name;

-- name: custom_models_page | The newest versions of an account's models behind a name.
SELECT m.* FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind) AND m.name > :after
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name LIMIT :limit;

-- name: custom_models_page_sizes | The characters of each of them.
SELECT LENGTH(m.document) AS size FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind) AND m.name > :after
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name LIMIT :limit;

-- name: custom_models_of | The newest version of every model of an account.
SELECT m.* FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind)
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name;

-- name: custom_models_after | Models that some account still has, all versions, as queued work may need old ones.
SELECT * FROM own_model
WHERE removed_at IS NULL AND (account_id, name, version) > (:account_id, :name, :version)
ORDER BY account_id, name, version LIMIT :limit;

-- name: custom_models_sizes | The characters of each of them.
SELECT LENGTH(document) AS size FROM own_model
WHERE removed_at IS NULL AND (account_id, name, version) > (:account_id, :name, :version)
ORDER BY account_id, name, version LIMIT :limit;

-- name: custom_model_remove | Forget an account's model, with all of its versions.
UPDATE own_model SET removed_at = :now
WHERE account_id = :account_id AND name = :name AND removed_at IS NULL
RETURNING *;
