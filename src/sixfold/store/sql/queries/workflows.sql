-- name: graph_file_put | Insert or replace a file of an account's workflows by its name.
INSERT INTO graph_file (account_id, kind, subfolder, name, stem, number, media, credential_id, created_at)
VALUES (:account_id, :kind, :subfolder, :name, :stem, :number, :media, :credential_id, :now)
ON CONFLICT (account_id, kind, subfolder, name)
DO UPDATE SET media = excluded.media, credential_id = excluded.credential_id, created_at = excluded.created_at
WHERE excluded.credential_id = '' OR excluded.credential_id = graph_file.credential_id
RETURNING name;

-- name: graph_file | Return an unexpired file of a workflow by its name, with its blob.
SELECT f.name, m.blob, m.content_type, m.size FROM graph_file f JOIN media m ON m.name = f.media
WHERE f.account_id = :account_id AND f.kind = :kind AND f.subfolder = :subfolder AND f.name = :name
  AND (:credential_id = '' OR f.credential_id = :credential_id) AND (m.expires_at IS NULL OR m.expires_at > :now);

-- name: graph_file_add | Insert a numbered file of an account's workflows; return nothing if its name is in use.
INSERT INTO graph_file (account_id, kind, subfolder, name, stem, number, media, credential_id, created_at)
VALUES (:account_id, :kind, :subfolder, :name, :stem, :number, :media, :credential_id, :now)
ON CONFLICT (account_id, kind, subfolder, name) DO NOTHING
RETURNING name;

-- name: graph_file_number | Return the highest number of the workflow files with a stem.
SELECT number FROM graph_file
WHERE account_id = :account_id AND kind = :kind AND subfolder = :subfolder AND stem = :stem AND number IS NOT NULL
ORDER BY number DESC LIMIT 1;

-- name: graph_files_of_media | Delete all workflow names of a media file.
DELETE FROM graph_file WHERE media = :media;

-- name: graph_outcome_put | Insert or replace the cached output of a node.
INSERT INTO graph_outcome (account_id, key, media, shown, expires_at, prediction_id, size)
VALUES (:account_id, :key, :media, :shown, :expires_at, :prediction_id, :size)
ON CONFLICT (account_id, key)
DO UPDATE SET media = excluded.media, shown = excluded.shown, expires_at = excluded.expires_at,
    prediction_id = excluded.prediction_id, size = excluded.size;

-- name: media_insert_cached | Insert a media file that holds the cached output of a node.
INSERT INTO media (name, account_id, blob, kind, content_type, size, sha256, prediction_id, upload_id,
                   credential_id, created_at, expires_at, is_cached)
VALUES (:name, :account_id, :blob, :kind, :content_type, :size, :sha256, :prediction_id, :upload_id,
        :credential_id, :now, :expires_at, 1);

-- name: storage_usage_cache | Add to the bytes of an account's cached node outputs; triggers subtract what is replaced or deleted.
INSERT INTO storage_usage (account_id, cached_bytes) VALUES (:account_id, :bytes)
ON CONFLICT (account_id) DO UPDATE SET cached_bytes = storage_usage.cached_bytes + excluded.cached_bytes;

-- name: graph_outcomes | Return unexpired node outputs for a list of keys, unless their prediction, or one whose outputs it used, has not succeeded.
SELECT o.key, o.shown, o.media, o.prediction_id, m.blob FROM graph_outcome o LEFT JOIN media m ON m.name = o.media
WHERE o.account_id = :account_id AND o.expires_at > :now
  AND (o.prediction_id = '' OR {is_paid_outcome o})
  AND o.key {in :keys};

-- name: graph_source_put | Record that a run uses cached outputs of another run, and so those of the runs whose outputs that one used.
INSERT INTO graph_source (account_id, prediction_id, source_id, expires_at)
SELECT CAST(:account_id AS TEXT), CAST(:prediction_id AS TEXT), CAST(:source_id AS TEXT), CAST(:now AS BIGINT) + :life
UNION ALL
SELECT s.account_id, CAST(:prediction_id AS TEXT), s.source_id, CAST(:now AS BIGINT) + :life FROM graph_source s
WHERE s.account_id = :account_id AND s.prediction_id = :source_id
ON CONFLICT DO NOTHING;

-- name: graph_sources_sweep | Delete expired records of the runs whose cached outputs another one used.
DELETE FROM graph_source WHERE expires_at <= :now;

-- name: graph_outcomes_clear | Delete an account's cached node outputs, either of keyless predictions or of all others.
DELETE FROM graph_outcome
WHERE account_id = :account_id AND (CASE WHEN key LIKE '/keyless/%' THEN 1 ELSE 0 END) = :keyless;

-- name: graph_outcomes_sweep | Delete expired node outputs.
DELETE FROM graph_outcome WHERE expires_at <= :now;
