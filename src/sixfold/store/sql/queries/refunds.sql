-- name: prediction_withdraw | Mark a succeeded prediction as failed and clear its output and cost.
UPDATE prediction
SET state = :to_state, output = NULL, cost = 0, credits = 0, charge = NULL, list_price = NULL,
    error = :error, error_kind = :error_kind, idempotency_id = NULL, completed_at = :now
WHERE id = :id AND state = 'succeeded'
RETURNING *;

-- name: prediction_results_below | Return the succeeded descendants of a prediction at any depth.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE parent_id = :parent_id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
SELECT * FROM prediction WHERE id IN (SELECT id FROM below) AND state = 'succeeded' ORDER BY id;

-- name: predictions_withheld_for_good | Return succeeded, withheld predictions whose parent ended without success.
SELECT c.* FROM prediction c
WHERE c.withheld = 1 AND c.state = 'succeeded'
  -- `|| ''` prevents a scan of the index `prediction_unsuccessful`, which may be long.
  AND EXISTS (SELECT 1 FROM prediction p
              WHERE p.id = c.parent_id AND p.state || '' IN ('failed', 'canceled', 'expired'))
ORDER BY c.parent_id LIMIT :limit;

-- name: predictions_withheld_though_paid | Return succeeded predictions that are not withheld, but whose children or files are.
WITH hidden AS MATERIALIZED (
    SELECT parent_id AS id FROM prediction WHERE withheld = 1 AND state = 'succeeded'
    UNION
    SELECT prediction_id AS id FROM media WHERE expires_at < 0)
SELECT h.id FROM hidden h
WHERE EXISTS (SELECT 1 FROM prediction p WHERE p.id = h.id AND p.state = 'succeeded' AND p.withheld = 0)
ORDER BY h.id LIMIT :limit;

-- name: media_withhold | Hide the files of a withheld prediction by negating their expiry (-1 for none).
UPDATE media SET expires_at = -COALESCE(expires_at, 1)
WHERE prediction_id IN (SELECT id FROM prediction WHERE id = :prediction_id AND withheld = 1)
  AND (expires_at IS NULL OR expires_at > 0);

-- name: predictions_release | Mark the descendants of a prediction as no longer withheld.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE parent_id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
UPDATE prediction SET withheld = 0 WHERE withheld = 1 AND id IN (SELECT id FROM below);

-- name: media_release | Restore the expiry of withheld files of a prediction and its descendants.
WITH RECURSIVE below (id) AS (
    SELECT id FROM prediction WHERE id = :id
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)
UPDATE media SET expires_at = CASE WHEN expires_at = -1 THEN NULL ELSE -expires_at END
WHERE expires_at < 0 AND prediction_id IN (SELECT id FROM below);

-- name: predictions_refunded_in_place | Return refunded predictions that are still marked as succeeded.
SELECT p.* FROM transfer t JOIN prediction p ON p.id = substr(t.id, 8)
WHERE t.kind = 'refund' AND p.state = 'succeeded' ORDER BY p.id LIMIT :limit;

-- name: predictions_orphaned | Return priced, succeeded child predictions whose parent ended without success.
SELECT c.* FROM prediction c JOIN prediction p ON p.id = c.parent_id
WHERE c.parent_id IS NOT NULL AND c.state = 'succeeded' AND c.cost > 0
  AND p.state IN ('failed', 'canceled', 'expired') ORDER BY c.id LIMIT :limit;

-- name: media_withdraw | Mark the output files of a prediction and the files saved by its workflow as expired.
UPDATE media SET expires_at = :now
WHERE prediction_id = :prediction_id AND account_id = :account_id
  AND (kind = 'output' OR expires_at < 0 OR EXISTS (SELECT 1 FROM graph_file f WHERE f.media = media.name AND f.account_id = :account_id)
       OR name IN (SELECT media FROM graph_outcome WHERE account_id = :account_id AND prediction_id = :prediction_id));

-- `|| ''` prevents a scan of the files of an account, which may have many, here and below.
-- name: media_withdraw_copies | Mark other names of the same bytes as expired, unless another output has these bytes.
UPDATE media SET expires_at = :now
WHERE account_id || '' = :account_id
  AND blob IN (SELECT w.blob FROM media w WHERE w.prediction_id = :prediction_id AND w.kind = 'output')
  AND ((kind = 'input' AND prediction_id IS NULL)
       OR EXISTS (SELECT 1 FROM gallery_post g WHERE g.media = media.name AND g.account_id = :account_id)
       OR EXISTS (SELECT 1 FROM gallery_character c WHERE c.avatar = media.name AND c.account_id = :account_id))
  AND NOT EXISTS (
      SELECT 1 FROM media o
      WHERE o.blob = media.blob AND o.account_id || '' = :account_id AND o.kind = 'output'
        AND (o.expires_at IS NULL OR o.expires_at > :now));

-- name: gallery_withdraw_copies | Mark published copies of a prediction's output as expired, unless another output has its bytes.
WITH own AS (
    SELECT w.blob FROM media w
    WHERE w.prediction_id = :prediction_id AND w.kind = 'output'
      AND NOT EXISTS (
          SELECT 1 FROM media o
          WHERE o.blob = w.blob AND o.account_id || '' = :account_id AND o.kind = 'output'
            AND (o.expires_at IS NULL OR o.expires_at > :now)))
UPDATE media SET expires_at = :now
WHERE account_id || '' = :account_id AND name IN (
    SELECT media FROM gallery_post WHERE account_id || '' = :account_id AND original IN (SELECT blob FROM own)
    UNION ALL
    SELECT avatar FROM gallery_character WHERE account_id || '' = :account_id AND original IN (SELECT blob FROM own));

-- name: media_withdrawn | Return a row if bytes are the output of a refunded run of an account, and of no other that it can read.
SELECT p.id FROM media m JOIN prediction p ON p.id = m.prediction_id
WHERE m.blob = :blob AND m.account_id || '' = :account_id AND m.kind = 'output' AND p.error_kind = :error_kind
  AND NOT EXISTS (
      SELECT 1 FROM media o
      WHERE o.blob = m.blob AND o.account_id || '' = :account_id AND o.kind = 'output'
        AND (o.expires_at IS NULL OR o.expires_at > :now))
LIMIT 1;

-- name: gallery_withdraw_tags | Delete the tags of posts that show a withdrawn file.
DELETE FROM gallery_tag WHERE post_id IN (
    SELECT p.id FROM gallery_post p JOIN media m ON m.name = p.media
    WHERE p.account_id = :account_id AND m.expires_at <= :now AND COALESCE(p.original, m.blob) IN (
        SELECT w.blob FROM media w WHERE w.prediction_id = :prediction_id AND w.kind = 'output'));

-- name: gallery_withdraw_posts | Delete posts that show a withdrawn file.
DELETE FROM gallery_post WHERE account_id = :account_id AND EXISTS (
    SELECT 1 FROM media m
    WHERE m.name = gallery_post.media AND m.expires_at <= :now AND COALESCE(gallery_post.original, m.blob) IN (
        SELECT w.blob FROM media w WHERE w.prediction_id = :prediction_id AND w.kind = 'output'));

-- name: gallery_withdraw_avatars | Clear avatars that show a withdrawn file.
UPDATE gallery_character SET avatar = NULL WHERE account_id = :account_id AND EXISTS (
    SELECT 1 FROM media m
    WHERE m.name = gallery_character.avatar AND m.expires_at <= :now
      AND COALESCE(gallery_character.original, m.blob) IN (
          SELECT w.blob FROM media w WHERE w.prediction_id = :prediction_id AND w.kind = 'output'));

-- name: idempotency_withdraw | Delete the stored response of a withdrawn result; the claim of a running request remains.
DELETE FROM idempotency WHERE id = :id AND status IS NOT NULL;

-- name: upload_path_reserve | Reserve a path for one prediction, unless it is a folder or reserved by another.
INSERT INTO upload_path (path, writer, changed_at) VALUES (:path, :writer, :now)
ON CONFLICT (path) DO UPDATE SET writer = excluded.writer, changed_at = excluded.changed_at
WHERE upload_path.files = 0 AND upload_path.writer IS NULL
RETURNING stored;

-- name: upload_path_enter | Increment the number of files below a folder; change nothing if a file has its path.
INSERT INTO upload_path (path, files, changed_at) VALUES (:path, 1, :now)
ON CONFLICT (path) DO UPDATE SET files = upload_path.files + 1 WHERE upload_path.files > 0;

-- name: upload_path_stored | Mark the path reserved by a prediction as stored and end the reservation.
UPDATE upload_path SET stored = 1, writer = NULL, changed_at = :now WHERE writer = :writer RETURNING path;

-- name: upload_path_release | End the reservation of a prediction's path.
UPDATE upload_path SET writer = NULL, changed_at = :now WHERE writer = :writer RETURNING path, stored;

-- name: upload_path_delete | Delete a path that has no files below it.
DELETE FROM upload_path WHERE path = :path AND files = 0 RETURNING path;

-- name: upload_path_leave | Decrement the number of files below a folder.
UPDATE upload_path SET files = files - 1 WHERE path = :path AND files > 0;

-- name: upload_path_empty | Delete an empty folder.
DELETE FROM upload_path WHERE path = :path AND files = 0 AND writer IS NULL AND stored = 0;

-- name: upload_paths_over | Return file paths unchanged since `before` whose writer has ended or is unset.
SELECT u.path FROM upload_path u LEFT JOIN prediction p ON p.id = u.writer
WHERE u.files = 0 AND u.changed_at < :before
  AND (u.writer IS NULL OR p.id IS NULL OR p.state IN ('succeeded', 'failed', 'canceled', 'expired'))
ORDER BY u.changed_at LIMIT :limit;

-- name: connections_keys | Return the keys of `ids` (a JSON array) that may keep a connection open that requires `role`, with `suspended` also those of suspended accounts.
SELECT k.id FROM api_key k JOIN account a ON a.id = k.account_id LEFT JOIN member m ON m.id = k.member_id
WHERE k.id {in :ids} AND a.closing_at IS NULL
  AND (:suspended = 1 OR (
      a.suspended_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM account u WHERE u.id IN (m.person_id, k.creator_id) AND u.suspended_at IS NOT NULL)))
  AND {has_role m}
  AND ((k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now))
       OR EXISTS (SELECT 1 FROM oauth_grant g
                  WHERE g.id = k.grant_id AND g.ended_at IS NULL AND g.expires_at > :now));

-- name: connections_sessions | Return the unexpired login sessions of `ids`, a JSON array of hexadecimal token hashes, that have `role`, with `suspended` also those of suspended and closed accounts; an owner's export continues when the account is closed.
SELECT lower(hex(token_hash)) AS id FROM signin
WHERE lower(hex(token_hash)) {in :ids} AND kind = 'session' AND expires_at > :now
  AND (:suspended = 1 OR NOT EXISTS (
      SELECT 1 FROM account a
      WHERE a.id IN (signin.account_id, signin.organization_id)
        AND (a.suspended_at IS NOT NULL OR (a.closing_at IS NOT NULL AND :role <> 'owner'))))
  AND NOT EXISTS (SELECT 1 FROM member m
                  WHERE m.account_id = signin.organization_id AND m.person_id = signin.account_id AND NOT {has_role m});

-- name: connections_logins | Return the unexpired login sessions of `ids`, a JSON array of their own ids, with `suspended` also those of suspended and closed accounts.
SELECT id FROM signin
WHERE id {in :ids} AND kind = 'session' AND expires_at > :now
  AND (:suspended = 1 OR NOT EXISTS (
      SELECT 1 FROM account a
      WHERE a.id IN (signin.account_id, signin.organization_id)
        AND (a.suspended_at IS NOT NULL OR a.closing_at IS NOT NULL)));

-- name: connections_folders | Return the shares of folders of `ids` (a JSON array) that have not ended.
SELECT f.id FROM shared_folder f JOIN account a ON a.id = f.account_id
WHERE f.id {in :ids}
  AND a.closing_at IS NULL AND a.suspended_at IS NULL
  AND {has_active_admin f} AND {has_valid_credential f} AND {has_valid_key f};
