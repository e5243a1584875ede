-- Adds the gallery: characters and posts.
-- What accounts show to everybody: characters and posts. Their files are names of their own in `media`.
CREATE TABLE gallery_character (
    id          TEXT PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES account (id),
    url_name    TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    greeting    TEXT NOT NULL,
    avatar      TEXT REFERENCES media (name),
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX gallery_character_account ON gallery_character (account_id);
CREATE INDEX gallery_character_avatar ON gallery_character (avatar);

-- `tags` is a JSON array in the order that was given; gallery_tag has one row for each of them.
CREATE TABLE gallery_post (
    id           TEXT PRIMARY KEY,
    account_id   TEXT NOT NULL REFERENCES account (id),
    text         TEXT NOT NULL,
    media        TEXT NOT NULL REFERENCES media (name),
    content_type TEXT NOT NULL,
    tags         TEXT NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX gallery_post_account ON gallery_post (account_id);
CREATE INDEX gallery_post_media ON gallery_post (media);

CREATE TABLE gallery_tag (
    tag     TEXT NOT NULL,
    post_id TEXT NOT NULL REFERENCES gallery_post (id),
    PRIMARY KEY (tag, post_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX gallery_tag_post ON gallery_tag (post_id);
