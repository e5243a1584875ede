-- name: gallery_character_insert | Insert a gallery character.
INSERT INTO gallery_character (id, account_id, url_name, name, description, greeting, avatar, original, created_at)
VALUES (:id, :account_id, :url_name, :name, :description, :greeting, :avatar, :original, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id;

-- name: gallery_url_name | Return the id of the character that uses a name in URLs.
SELECT id FROM gallery_character WHERE url_name = :url_name;

-- name: gallery_characters | Return a page of the characters of all open accounts, newest first.
SELECT c.*, a.author_id FROM gallery_character AS c JOIN account AS a ON a.id = c.account_id
WHERE c.id < :before AND a.closing_at IS NULL AND a.suspended_at IS NULL ORDER BY c.id DESC LIMIT :limit;

-- name: gallery_character_account | Return the account of a character, also of a suspended one.
SELECT account_id FROM gallery_character WHERE id = :id;

-- name: gallery_character_delete | Delete a character of an account and return its avatar; return no row if there is none.
DELETE FROM gallery_character WHERE id = :id AND account_id = :account_id RETURNING avatar;

-- name: gallery_character_count | Count an account's characters.
SELECT COUNT(*) AS total FROM gallery_character WHERE account_id = :account_id;

-- name: gallery_post_insert | Insert a gallery post.
INSERT INTO gallery_post (id, account_id, text, media, content_type, tags, is_unlisted, model, inputs, original, created_at)
VALUES (:id, :account_id, :text, :media, :content_type, :tags, :is_unlisted, :model, :inputs, :original, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id,
    (SELECT public_name FROM account WHERE account.id = :account_id) AS author_name;

-- name: gallery_original | Return the output that is a blob, of which a published blob is a copy, or of a run, in this order.
SELECT o.original FROM (
    SELECT blob AS original, 0 AS step FROM media
    WHERE blob = :blob AND account_id = :account_id AND kind = 'output'
    UNION ALL
    SELECT p.original, 1 AS step FROM media m JOIN gallery_post p ON p.media = m.name
    WHERE m.blob = :blob AND m.account_id = :account_id AND p.original IS NOT NULL
    UNION ALL
    SELECT c.original, 1 AS step FROM media m JOIN gallery_character c ON c.avatar = m.name
    WHERE m.blob = :blob AND m.account_id = :account_id AND c.original IS NOT NULL
    UNION ALL
    SELECT blob AS original, 2 AS step FROM media
    WHERE prediction_id = :prediction_id AND account_id = :account_id AND kind = 'output') AS o
ORDER BY o.step, o.original LIMIT 1;

-- name: gallery_post | Return a post of an open account, listed or not.
SELECT p.*, a.author_id, a.public_name AS author_name FROM gallery_post AS p JOIN account AS a ON a.id = p.account_id
WHERE p.id = :id AND a.closing_at IS NULL AND a.suspended_at IS NULL;

-- name: gallery_post_account | Return the account of a post, also of a suspended one.
SELECT account_id FROM gallery_post WHERE id = :id;

-- name: gallery_post_tags_delete | Delete the tags of a post of an account.
DELETE FROM gallery_tag WHERE post_id IN (SELECT id FROM gallery_post WHERE id = :id AND account_id = :account_id);

-- name: gallery_post_delete | Delete a post of an account and return its file; return no row if there is none.
DELETE FROM gallery_post WHERE id = :id AND account_id = :account_id RETURNING media;

-- name: media_expire | Mark a media file of an account as expired, so that the sweep deletes its bytes.
UPDATE media SET expires_at = :now WHERE name = :name AND account_id = :account_id;

-- name: account_public_name | Return the name by which an account publishes.
SELECT public_name FROM account WHERE id = :id;

-- name: account_by_public_name | Return the account that publishes by a name.
SELECT id FROM account WHERE public_name = :name;

-- name: account_public_name_set | Set the name by which an account publishes.
UPDATE account SET public_name = :name WHERE id = :id;

-- name: gallery_tag_insert | Insert a tag of a post.
INSERT INTO gallery_tag (tag, post_id) VALUES (:tag, :post_id);

-- name: gallery_posts | Return a page of the listed posts of all open accounts, newest first.
SELECT p.*, a.author_id, a.public_name AS author_name FROM gallery_post AS p JOIN account AS a ON a.id = p.account_id
WHERE p.id < :before AND p.is_unlisted = 0 AND a.closing_at IS NULL AND a.suspended_at IS NULL ORDER BY p.id DESC LIMIT :limit;

-- name: gallery_posts_tagged | Return a page of listed posts of open accounts with a tag, newest first.
SELECT p.*, a.author_id, a.public_name AS author_name FROM gallery_tag AS t
JOIN gallery_post AS p ON p.id = t.post_id JOIN account AS a ON a.id = p.account_id
WHERE t.tag = :tag AND t.post_id < :before AND p.is_unlisted = 0 AND a.closing_at IS NULL AND a.suspended_at IS NULL
ORDER BY t.post_id DESC LIMIT :limit;

-- name: gallery_post_count | Count an account's posts.
SELECT COUNT(*) AS total FROM gallery_post WHERE account_id = :account_id;
