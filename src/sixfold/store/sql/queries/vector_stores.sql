-- name: vector_store_insert | Insert a vector store.
INSERT INTO vector_store (id, account_id, credential_id, name, description, metadata, expires_days, last_active_at,
                          created_at)
VALUES (:id, :account_id, :credential_id, :name, :description, :metadata, :expires_days, :now, :now);

-- name: vector_store_by_id | Return a vector store that a tenant sees, with the counts and bytes of its files.
SELECT s.*, COALESCE(f.in_progress, 0) AS in_progress, COALESCE(f.completed, 0) AS completed,
       COALESCE(f.failed, 0) AS failed, COALESCE(f.cancelled, 0) AS cancelled,
       CAST(COALESCE(f.bytes, 0) AS BIGINT) AS bytes, CAST(:now AS BIGINT) AS now
FROM vector_store s
LEFT JOIN (SELECT store_id, SUM(CASE WHEN status = 'in_progress' THEN 1 ELSE 0 END) AS in_progress,
                  SUM(CASE WHEN status = 'completed' THEN 1 ELSE 0 END) AS completed,
                  SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) AS failed,
                  SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled, SUM(bytes) AS bytes
           FROM vector_store_file WHERE store_id = :id GROUP BY store_id) f ON f.store_id = s.id
WHERE s.id = :id AND s.account_id = :account_id AND (:credential_id = '' OR s.credential_id = :credential_id);

-- name: vector_store_ids_before | Return a page of ids of a tenant's vector stores, newest first.
SELECT id FROM vector_store
WHERE account_id = :account_id AND id < :bound AND (:credential_id = '' OR credential_id = :credential_id)
ORDER BY id DESC LIMIT :limit;

-- name: vector_store_ids_after | Return a page of ids of a tenant's vector stores, oldest first.
SELECT id FROM vector_store
WHERE account_id = :account_id AND id > :bound AND (:credential_id = '' OR credential_id = :credential_id)
ORDER BY id LIMIT :limit;

-- name: vector_store_usage | Return an account's number of vector stores, and the bytes of their text.
SELECT (SELECT COUNT(*) FROM vector_store WHERE account_id = :account_id) AS stores,
       CAST(COALESCE((SELECT SUM(bytes) FROM vector_store_file WHERE account_id = :account_id), 0) AS BIGINT) AS bytes;

-- name: vector_store_bytes | Return the bytes of text in a vector store.
SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM vector_store_file WHERE store_id = :id;

-- name: vector_store_update | Change the fields of a vector store.
UPDATE vector_store SET name = :name, description = :description, metadata = :metadata, expires_days = :expires_days
WHERE id = :id;

-- name: vector_store_active | Record a use of a vector store.
UPDATE vector_store SET last_active_at = :at WHERE id = :id;

-- name: vector_store_changed | Number a change of the chunks of a vector store.
UPDATE vector_store SET version = version + 1, last_active_at = :now WHERE id = :id;

-- name: vector_store_delete | Delete a vector store, whose parts are deleted before.
DELETE FROM vector_store WHERE id = :id;

-- name: vector_store_chunks_clear | Delete the chunks of a vector store.
DELETE FROM vector_store_chunk WHERE store_id = :id;

-- name: vector_store_files_clear | Delete the files of a vector store.
DELETE FROM vector_store_file WHERE store_id = :id;

-- name: vector_store_batches_clear | Delete the batches of a vector store.
DELETE FROM vector_store_batch WHERE store_id = :id;

-- name: vector_store_file_put | Add a file to a vector store, or add it anew.
INSERT INTO vector_store_file (store_id, file_id, account_id, filename, status, attributes, max_tokens, overlap,
                               batch_id, created_at)
VALUES (:id, :file_id, :account_id, :filename, 'in_progress', :attributes, :max_tokens, :overlap, :batch_id, :now)
ON CONFLICT (store_id, file_id) DO UPDATE SET status = 'in_progress', error_code = '', error = '', claimed_at = 0,
    attributes = excluded.attributes, max_tokens = excluded.max_tokens, overlap = excluded.overlap,
    batch_id = excluded.batch_id, created_at = excluded.created_at, bytes = 0;

-- name: vector_store_file_by_id | Return a file of a vector store.
SELECT * FROM vector_store_file WHERE store_id = :id AND file_id = :file_id;

-- name: vector_store_files_after_bound | Return a page of files of a vector store or of one of its batches, oldest first.
SELECT * FROM vector_store_file
WHERE store_id = :id AND (:batch_id = '' OR batch_id = :batch_id) AND (:status = '' OR status = :status)
  AND (created_at, file_id) > (COALESCE((SELECT bound.created_at FROM vector_store_file bound
                                         WHERE bound.store_id = :id AND bound.file_id = :bound), -1), :bound)
ORDER BY created_at, file_id LIMIT :limit;

-- name: vector_store_files_before_bound | Return a page of files of a vector store or of one of its batches, newest first.
SELECT * FROM vector_store_file
WHERE store_id = :id AND (:batch_id = '' OR batch_id = :batch_id) AND (:status = '' OR status = :status)
  AND (created_at, file_id) < (COALESCE((SELECT bound.created_at FROM vector_store_file bound
                                         WHERE bound.store_id = :id AND bound.file_id = :bound),
                                        9223372036854775807), :bound)
ORDER BY created_at DESC, file_id DESC LIMIT :limit;

-- name: vector_store_file_count | Count the files of a vector store.
SELECT COUNT(*) AS files FROM vector_store_file WHERE store_id = :id;

-- name: vector_store_file_attributes | Replace the attributes of a file of a vector store.
UPDATE vector_store_file SET attributes = :attributes WHERE store_id = :id AND file_id = :file_id;

-- name: vector_store_file_delete | Remove a file from a vector store.
DELETE FROM vector_store_file WHERE store_id = :id AND file_id = :file_id RETURNING file_id;

-- name: vector_store_file_chunks_clear | Delete the chunks of a file of a vector store.
DELETE FROM vector_store_chunk WHERE store_id = :id AND file_id = :file_id;

-- name: vector_store_claim | Claim the oldest waiting file whose earlier claim has lapsed.
UPDATE vector_store_file SET claimed_at = :now
WHERE status = 'in_progress' AND claimed_at < :before AND (store_id, file_id) IN (
    SELECT store_id, file_id FROM vector_store_file WHERE status = 'in_progress' AND claimed_at < :before
    ORDER BY created_at, file_id LIMIT 1)
RETURNING *;

-- name: vector_store_file_end | End the reading of a claimed file; no row if it was removed, cancelled or added anew.
UPDATE vector_store_file SET status = :status, error_code = :error_code, error = :error, bytes = :bytes
WHERE store_id = :id AND file_id = :file_id AND status = 'in_progress' AND claimed_at = :claimed_at
RETURNING file_id;

-- name: vector_store_chunk_put | Insert a chunk of a file.
INSERT INTO vector_store_chunk (store_id, file_id, position, text) VALUES (:id, :file_id, :position, :text);

-- name: vector_store_chunks | Return the next chunks of the completed files of a vector store.
SELECT c.file_id, c.position, c.text FROM vector_store_chunk c
JOIN vector_store_file f ON f.store_id = c.store_id AND f.file_id = c.file_id
WHERE c.store_id = :id AND f.status = 'completed' AND (c.file_id, c.position) > (:file_id, :position)
ORDER BY c.file_id, c.position LIMIT :limit;

-- name: vector_store_file_chunks | Return the next chunks of a file of a vector store.
SELECT position, text FROM vector_store_chunk
WHERE store_id = :id AND file_id = :file_id AND position >= :position ORDER BY position LIMIT :limit;

-- name: vector_store_chunk_by_position | Return the text of a chunk.
SELECT text FROM vector_store_chunk WHERE store_id = :id AND file_id = :file_id AND position = :position;

-- name: vector_store_batch_insert | Insert a batch of files.
INSERT INTO vector_store_batch (id, store_id, created_at) VALUES (:batch_id, :id, :now);

-- name: vector_store_batch_by_id | Return a batch of files of a vector store.
SELECT * FROM vector_store_batch WHERE id = :batch_id AND store_id = :id;

-- name: vector_store_batch_counts | Count the files of a batch by status.
SELECT status, COUNT(*) AS files FROM vector_store_file
WHERE store_id = :id AND batch_id = :batch_id GROUP BY status;

-- name: vector_store_batch_cancel | Cancel a batch.
UPDATE vector_store_batch SET cancelled = 1 WHERE id = :batch_id;

-- name: vector_store_batch_files_cancel | Cancel the waiting files of a batch.
UPDATE vector_store_file SET status = 'cancelled'
WHERE store_id = :id AND batch_id = :batch_id AND status = 'in_progress';

-- name: vector_stores_expired | Return vector stores that were unused for longer than their life.
SELECT id FROM vector_store
WHERE expires_days IS NOT NULL AND expired = 0 AND last_active_at < :now - 86400000000
  AND last_active_at < :now - expires_days * 86400000000 LIMIT 20;

-- name: vector_store_expire | Mark a vector store as expired.
UPDATE vector_store SET expired = 1, version = version + 1 WHERE id = :id;

-- name: vector_store_files_after | Return the next files of vector stores by their ids, and whether each still exists.
SELECT v.file_id, CASE WHEN f.id IS NULL THEN 0 ELSE 1 END AS existing FROM vector_store_file v
LEFT JOIN account_file f ON f.id = v.file_id
WHERE v.file_id > :after ORDER BY v.file_id LIMIT :limit;

-- name: export_vector_stores | Return a page of an account's vector stores, ordered by id.
SELECT id, name, description, metadata, expires_days, last_active_at, created_at FROM vector_store
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_vector_store_files | Return a page of the files of an account's vector stores, ordered by id.
SELECT store_id || '/' || file_id AS id, filename, status, attributes, max_tokens, overlap, bytes, created_at
FROM vector_store_file WHERE account_id = :account_id AND store_id || '/' || file_id > :after
ORDER BY store_id || '/' || file_id LIMIT :limit;

-- name: erase_vector_store_chunks | Delete the chunks of an account's vector stores.
DELETE FROM vector_store_chunk WHERE store_id IN (SELECT id FROM vector_store WHERE account_id = :account_id);

-- name: erase_vector_store_files | Delete the files of an account's vector stores.
DELETE FROM vector_store_file WHERE account_id = :account_id;

-- name: erase_vector_store_batches | Delete the batches of an account's vector stores.
DELETE FROM vector_store_batch WHERE store_id IN (SELECT id FROM vector_store WHERE account_id = :account_id);

-- name: erase_vector_stores | Delete an account's vector stores.
DELETE FROM vector_store WHERE account_id = :account_id;
