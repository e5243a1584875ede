-- name: gallery_character_insert | One character.
INSERT INTO gallery_character (id, account_id, url_name, name, description, greeting, avatar, created_at)
VALUES (:id, :account_id, :url_name, :name, :description, :greeting, :avatar, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id;

-- name: gallery_url_name | Whether a character's name in URLs is taken.
SELECT id FROM gallery_character WHERE url_name = :url_name;

-- name: gallery_characters | Everybody's characters, newest first.
SELECT c.*, a.author_id FROM gallery_character AS c JOIN account AS a ON a.id = c.account_id
WHERE c.id < :before ORDER BY c.id DESC LIMIT :limit;

-- name: gallery_character_count | How many characters an account has.
SELECT COUNT(*) AS total FROM gallery_character WHERE account_id = :account_id;

-- name: gallery_post_insert | One post.
INSERT INTO gallery_post (id, account_id, text, media, content_type, tags, created_at)
VALUES (:id, :account_id, :text, :media, :content_type, :tags, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id;

-- name: gallery_tag_insert | One tag of a post.
INSERT INTO gallery_tag (tag, post_id) VALUES (:tag, :post_id);

-- name: gallery_posts | Everybody's posts, newest first.
SELECT p.*, a.author_id FROM gallery_post AS p JOIN account AS a ON a.id = p.account_id
WHERE p.id < :before ORDER BY p.id DESC LIMIT :limit;

-- name: gallery_posts_tagged | The posts with a tag, newest first.
SELECT p.*, a.author_id FROM gallery_tag AS t
JOIN gallery_post AS p ON p.id = t.post_id JOIN account AS a ON a.id = p.account_id
WHERE t.tag = :tag AND t.post_id < :before
ORDER BY t.post_id DESC LIMIT :limit;

-- name: gallery_post_count | How many posts an account has.
SELECT COUNT(*) AS total FROM gallery_post WHERE account_id = :account_id;
