-- name: media_insert | Insert a media file of an account.
INSERT INTO media (name, account_id, blob, kind, content_type, size, sha256, prediction_id, upload_id,
                   credential_id, created_at, expires_at)
VALUES (:name, :account_id, :blob, :kind, :content_type, :size, :sha256, :prediction_id, :upload_id,
        :credential_id, :now, :expires_at);

-- name: media_by_name | Return an unexpired media file by its name.
SELECT * FROM media WHERE name = :name AND (expires_at IS NULL OR expires_at > :now);

-- name: media_served | Return an unexpired media file by its name, unless its account is suspended or about to be closed.
SELECT m.* FROM media m JOIN account a ON a.id = m.account_id
WHERE m.name = :name AND (m.expires_at IS NULL OR m.expires_at > :now)
  AND a.suspended_at IS NULL AND a.closing_at IS NULL;

-- name: media_usable | Return an unexpired media file by its name, unless its account is another one that is suspended or about to be closed.
SELECT m.* FROM media m JOIN account a ON a.id = m.account_id
WHERE m.name = :name AND (m.expires_at IS NULL OR m.expires_at > :now)
  AND (m.account_id = :account_id OR (a.suspended_at IS NULL AND a.closing_at IS NULL));

-- name: media_by_upload | Return an unexpired upload by its id and account.
SELECT * FROM media WHERE upload_id = :upload_id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id)
  AND (expires_at IS NULL OR expires_at > :now);

-- name: uploads_before | Return a page of a tenant's unexpired uploads, newest first.
SELECT * FROM media
WHERE account_id = :account_id AND kind = 'upload' AND upload_id < :bound
  AND (:credential_id = '' OR credential_id = :credential_id) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY upload_id DESC LIMIT :limit;

-- name: upload_expire | Let an upload that a tenant sees expire now.
UPDATE media SET expires_at = :now
WHERE upload_id = :upload_id AND account_id = :account_id AND kind = 'upload'
  AND (:credential_id = '' OR credential_id = :credential_id) AND (expires_at IS NULL OR expires_at > :now)
RETURNING name;

-- name: media_usage | Return the bytes of unexpired uploads that count against an account's quota.
SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS used FROM media
WHERE account_id = :account_id AND kind = 'upload' AND (expires_at IS NULL OR expires_at > :now);

-- name: media_keep | Clear the expiry of an upload that is in use.
UPDATE media SET expires_at = NULL WHERE name = :name RETURNING name;

-- name: media_expired | Return expired media files that are not withheld and at least 24 hours old, at most a limit.
SELECT name, blob, CAST(:now AS BIGINT) AS now FROM media
WHERE expires_at > 0 AND expires_at <= :now AND created_at <= :now - 86400000000 ORDER BY expires_at LIMIT :limit;

-- name: media_leaving | Return the bytes of an account's expired files that the sweep has not deleted and no other file of the account shares.
SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS bytes FROM (
    SELECT MAX(m.size) AS size FROM media m
    WHERE m.expires_at > 0 AND m.expires_at <= :now AND m.account_id || '' = :account_id
      AND NOT EXISTS (SELECT 1 FROM media o WHERE o.blob = m.blob AND o.account_id = m.account_id
                      AND (o.expires_at IS NULL OR (o.expires_at > :now AND o.kind <> 'input')))
    GROUP BY m.blob) AS leaving;

-- name: media_leave | Insert an expired media file, so that the sweep deletes its bytes if no other file shares them.
INSERT INTO media (name, account_id, blob, kind, content_type, size, created_at, expires_at)
VALUES (:name, :account_id, :blob, 'input', 'application/octet-stream', :size, :now, :now);

-- name: media_inputs_leave | Let the input files of a run that ended without a charge expire in a day.
UPDATE media SET expires_at = :now + 86400000000
WHERE prediction_id = :prediction_id AND kind = 'input' AND expires_at IS NULL;

-- name: media_delete | Delete a media file and return its blob.
DELETE FROM media WHERE name = :name RETURNING blob;

-- name: media_blob_names | Return one media file that refers to a blob, if any.
SELECT name FROM media WHERE blob = :blob LIMIT 1;

-- name: media_set_file_name | Record the name that an uploaded file has on the user's device.
UPDATE media SET file_name = :file_name WHERE name = :name;

-- name: run_drawing_get | Return the picture of a run without files.
SELECT image FROM run_drawing WHERE prediction_id = :prediction_id;

-- name: run_drawing_put | Store the picture of a run without files.
INSERT INTO run_drawing (prediction_id, image) VALUES (:prediction_id, :image)
ON CONFLICT (prediction_id) DO NOTHING;

-- name: run_drawing_delete | Delete the picture of a run whose result is withdrawn.
DELETE FROM run_drawing WHERE prediction_id = :prediction_id;

-- name: share_card_get | Return the picture of a share.
SELECT digest, image FROM share_card WHERE share_id = :share_id;

-- name: share_card_put | Store the picture of a share, in place of an earlier one.
INSERT INTO share_card (share_id, digest, image) VALUES (:share_id, :digest, :image)
ON CONFLICT (share_id) DO UPDATE SET digest = excluded.digest, image = excluded.image;

-- name: share_exists | Return a share that has not been deleted.
SELECT id FROM share WHERE id = :id;
