-- name: gallery_character_insert | Insert a gallery character.
INSERT INTO gallery_character (id, account_id, url_name, name, description, greeting, avatar, created_at)
VALUES (:id, :account_id, :url_name, :name, :description, :greeting, :avatar, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id;

-- name: gallery_url_name | Return the id of the character that uses a name in URLs.
SELECT id FROM gallery_character WHERE url_name = :url_name;

-- name: gallery_characters | Return a page of the characters of all accounts, newest first.
SELECT c.*, a.author_id FROM gallery_character AS c JOIN account AS a ON a.id = c.account_id
WHERE c.id < :before ORDER BY c.id DESC LIMIT :limit;

-- name: gallery_character_count | Count an account's characters.
SELECT COUNT(*) AS total FROM gallery_character WHERE account_id = :account_id;

-- name: gallery_post_insert | Insert a gallery post.
INSERT INTO gallery_post (id, account_id, text, media, content_type, tags, created_at)
VALUES (:id, :account_id, :text, :media, :content_type, :tags, :now)
RETURNING *, (SELECT author_id FROM account WHERE account.id = :account_id) AS author_id;

-- name: gallery_tag_insert | Insert a tag of a post.
INSERT INTO gallery_tag (tag, post_id) VALUES (:tag, :post_id);

-- name: gallery_posts | Return a page of the posts of all accounts, newest first.
SELECT p.*, a.author_id FROM gallery_post AS p JOIN account AS a ON a.id = p.account_id
WHERE p.id < :before ORDER BY p.id DESC LIMIT :limit;

-- name: gallery_posts_tagged | Return a page of posts with a tag, newest first.
SELECT p.*, a.author_id FROM gallery_tag AS t
JOIN gallery_post AS p ON p.id = t.post_id JOIN account AS a ON a.id = p.account_id
WHERE t.tag = :tag AND t.post_id < :before
ORDER BY t.post_id DESC LIMIT :limit;

-- name: gallery_post_count | Count an account's posts.
SELECT COUNT(*) AS total FROM gallery_post WHERE account_id = :account_id;
