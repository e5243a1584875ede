-- name: file_insert | Insert a file of an account.
INSERT INTO account_file (id, account_id, credential_id, filename, purpose, content_type, size, media, created_at,
                          expires_at)
VALUES (:id, :account_id, :credential_id, :filename, :purpose, :content_type, :size, :media, :now, :expires_at);

-- name: file_by_id | Return an unexpired file that a tenant sees, with the key of its blob; `memory` is 1 to include files of pages.
SELECT f.*, m.blob FROM account_file f JOIN media m ON m.name = f.media
WHERE f.id = :id AND f.account_id = :account_id AND (:credential_id = '' OR f.credential_id = :credential_id)
  AND (f.purpose <> 'memory' OR :memory = 1) AND (f.expires_at IS NULL OR f.expires_at > :now);

-- name: files_before | Return a page of a tenant's files, newest first; an empty purpose matches all.
SELECT f.*, m.blob FROM account_file f JOIN media m ON m.name = f.media
WHERE f.account_id = :account_id AND f.id < :bound AND (:credential_id = '' OR f.credential_id = :credential_id)
  AND (:purpose = '' OR f.purpose = :purpose) AND (f.purpose <> 'memory' OR :memory = 1)
  AND (f.expires_at IS NULL OR f.expires_at > :now)
ORDER BY f.id DESC LIMIT :limit;

-- name: files_after | Return a page of a tenant's files, oldest first; an empty purpose matches all.
SELECT f.*, m.blob FROM account_file f JOIN media m ON m.name = f.media
WHERE f.account_id = :account_id AND f.id > :bound AND (:credential_id = '' OR f.credential_id = :credential_id)
  AND (:purpose = '' OR f.purpose = :purpose) AND (f.purpose <> 'memory' OR :memory = 1)
  AND (f.expires_at IS NULL OR f.expires_at > :now)
ORDER BY f.id LIMIT :limit;

-- name: file_usage | Return how many files and bytes count against an account's quotas, with its pending uploads and the inputs of unfinished batches whose files were deleted.
SELECT CAST(COALESCE(SUM(files), 0) AS BIGINT) AS files, CAST(COALESCE(SUM(size), 0) AS BIGINT) AS bytes FROM (
    SELECT 1 AS files, size FROM account_file
    WHERE account_id = :account_id AND (expires_at IS NULL OR expires_at > :now)
    UNION ALL
    SELECT 1, size FROM file_upload WHERE account_id = :account_id AND state = 'pending' AND expires_at > :now
    UNION ALL
    SELECT 0, MAX(m.size) FROM batch b JOIN media m ON m.name = b.input_media
    WHERE b.account_id = :account_id AND b.ended_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM account_file f
        WHERE f.id = b.input_file_id AND (f.expires_at IS NULL OR f.expires_at > :now))
    GROUP BY m.blob) AS used;

-- name: file_delete | Delete a file that a tenant sees, and return the name of its media file.
DELETE FROM account_file
WHERE id = :id AND account_id = :account_id AND (:credential_id = '' OR credential_id = :credential_id)
  AND (purpose <> 'memory' OR :memory = 1) AND (expires_at IS NULL OR expires_at > :now)
RETURNING media;

-- name: file_media_expire | Let a media file of a file or a part expire now.
UPDATE media SET expires_at = :now WHERE name = :name;

-- name: files_expired | Return some expired files.
SELECT id FROM account_file WHERE expires_at <= :now LIMIT :limit;

-- name: file_drop | Delete an expired file.
DELETE FROM account_file WHERE id = :file_id;

-- name: file_stores_changed | Number a change of the chunks of the vector stores that have a file.
UPDATE vector_store SET version = version + 1
WHERE id IN (SELECT store_id FROM vector_store_file WHERE file_id = :file_id);

-- name: file_chunks_delete | Delete the chunks of a file in all vector stores.
DELETE FROM vector_store_chunk
WHERE file_id = :file_id AND store_id IN (SELECT store_id FROM vector_store_file WHERE file_id = :file_id);

-- name: file_stores_leave | Remove a file from all vector stores.
DELETE FROM vector_store_file WHERE file_id = :file_id;

-- name: file_upload_insert | Insert an upload in parts.
INSERT INTO file_upload (id, account_id, credential_id, filename, purpose, content_type, size, state, file_seconds,
                         created_at, expires_at)
VALUES (:id, :account_id, :credential_id, :filename, :purpose, :content_type, :size, 'pending', :file_seconds,
        :now, :now + :life);

-- name: file_upload_by_id | Return an unexpired upload that a tenant sees, with the time.
SELECT u.*, CAST(:now AS BIGINT) AS now FROM file_upload u
WHERE u.id = :id AND u.account_id = :account_id AND (:credential_id = '' OR u.credential_id = :credential_id)
  AND u.expires_at > :now;

-- name: file_upload_end | End a pending upload; return no row if it has ended before.
UPDATE file_upload SET state = :state, file_id = :file_id WHERE id = :id AND state = 'pending' RETURNING id;

-- name: file_part_insert | Insert a part of an upload.
INSERT INTO file_part (id, upload_id, media, size, created_at) VALUES (:id, :upload_id, :media, :size, :now);

-- name: file_parts | Return the parts of an upload with the keys of their blobs.
SELECT p.id, p.media, p.size, m.blob FROM file_part p JOIN media m ON m.name = p.media
WHERE p.upload_id = :upload_id ORDER BY p.id;

-- name: file_parts_expire | Let the media files of an upload's parts expire now.
UPDATE media SET expires_at = :now WHERE name IN (SELECT p.media FROM file_part p WHERE p.upload_id = :upload_id);

-- name: file_parts_sweep | Delete the parts of expired uploads.
DELETE FROM file_part WHERE upload_id IN (SELECT id FROM file_upload WHERE expires_at <= :now);

-- name: file_uploads_sweep | Delete expired uploads.
DELETE FROM file_upload WHERE expires_at <= :now;
