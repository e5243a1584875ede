-- name: custom_model_insert | Insert the next version of an account's custom model.
INSERT INTO own_model (account_id, name, version, kind, document, training_id, created_at)
SELECT :account_id, :name, COALESCE(MAX(version), 0) + 1, :kind, :document, :training_id, :now
FROM own_model WHERE account_id = :account_id AND name = :name
RETURNING *, (SELECT a.kind FROM account a WHERE a.id = own_model.account_id) AS owner_kind;

-- name: custom_model_newest | Return the newest version of a custom model, unless the model is removed.
SELECT m.*, (SELECT a.kind FROM account a WHERE a.id = m.account_id) AS owner_kind FROM own_model m
WHERE account_id = :account_id AND name = :name AND removed_at IS NULL
ORDER BY version DESC LIMIT 1;

-- name: custom_model_names | Return the names of an account's custom models, with a `kind` only those of that kind.
SELECT DISTINCT name FROM own_model
WHERE account_id = :account_id AND removed_at IS NULL AND (:kind = '' OR kind = :kind) ORDER BY name;

-- name: custom_models_beside | Count an account's custom models with a name other than the given one, and all versions.
SELECT COUNT(DISTINCT CASE WHEN removed_at IS NULL AND name <> :name THEN name END) AS count,
    COUNT(*) AS versions FROM own_model
WHERE account_id = :account_id;

-- name: custom_models_page | Return a page of the newest versions of an account's custom models, ordered by name.
SELECT m.*, (SELECT a.kind FROM account a WHERE a.id = m.account_id) AS owner_kind FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind) AND m.name > :after
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name LIMIT :limit;

-- name: custom_models_page_sizes | Return the sizes in characters of the rows of `custom_models_page`.
SELECT LENGTH(m.document) AS size FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind) AND m.name > :after
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name LIMIT :limit OFFSET :offset;

-- name: custom_models_of | Return the newest version of each custom model of an account.
SELECT m.*, (SELECT a.kind FROM account a WHERE a.id = m.account_id) AS owner_kind FROM own_model m
WHERE m.account_id = :account_id AND m.removed_at IS NULL AND (:kind = '' OR m.kind = :kind)
  AND m.version = (
      SELECT MAX(n.version) FROM own_model n WHERE n.account_id = m.account_id AND n.name = m.name)
ORDER BY m.name;

-- name: custom_models_after | Return a page of all custom models of all accounts in all versions; queued work may need old ones.
SELECT m.*, (SELECT a.kind FROM account a WHERE a.id = m.account_id) AS owner_kind FROM own_model m
WHERE removed_at IS NULL AND (account_id, name, version) > (:account_id, :name, :version)
ORDER BY account_id, name, version LIMIT :limit;

-- name: custom_models_sizes | Return the sizes in characters of the rows of `custom_models_after`.
SELECT LENGTH(document) AS size FROM own_model
WHERE removed_at IS NULL AND (account_id, name, version) > (:account_id, :name, :version)
ORDER BY account_id, name, version LIMIT :limit OFFSET :offset;

-- name: custom_model_remove | Mark all versions of an account's custom model as removed.
UPDATE own_model SET removed_at = :now
WHERE account_id = :account_id AND name = :name AND removed_at IS NULL
RETURNING *;
