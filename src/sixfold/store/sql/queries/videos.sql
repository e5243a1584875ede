-- name: videos_down | Return an account's videos before an id, newest first.
SELECT * FROM prediction WHERE account_id = :account_id AND face = 'videos' AND id < :after
  AND (:credential_id = '' OR credential_id = :credential_id)
ORDER BY id DESC LIMIT :limit;

-- name: videos_up | Return an account's videos after an id, oldest first.
SELECT * FROM prediction WHERE account_id = :account_id AND face = 'videos' AND id > :after
  AND (:credential_id = '' OR credential_id = :credential_id)
ORDER BY id LIMIT :limit;

-- name: video_delete | Remove an ended video from the list of videos.
UPDATE prediction SET face = 'videos.deleted'
WHERE id = :id AND account_id = :account_id AND face = 'videos' RETURNING id;
