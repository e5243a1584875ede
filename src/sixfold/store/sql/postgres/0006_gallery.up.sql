-- Adds the gallery: characters and posts.
-- What accounts show to everybody: characters and posts. Their files are names of their own in `media`.
CREATE TABLE gallery_character (
    id          TEXT COLLATE "C" PRIMARY KEY,
    account_id  TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    url_name    TEXT COLLATE "C" NOT NULL UNIQUE,
    name        TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    greeting    TEXT COLLATE "C" NOT NULL,
    avatar      TEXT COLLATE "C" REFERENCES media (name),
    created_at  BIGINT NOT NULL
);
CREATE INDEX gallery_character_account ON gallery_character (account_id);
CREATE INDEX gallery_character_avatar ON gallery_character (avatar);

-- `tags` is a JSON array in the order that was given; gallery_tag has one row for each of them.
CREATE TABLE gallery_post (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    text         TEXT COLLATE "C" NOT NULL,
    media        TEXT COLLATE "C" NOT NULL REFERENCES media (name),
    content_type TEXT COLLATE "C" NOT NULL,
    tags         TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL
);
CREATE INDEX gallery_post_account ON gallery_post (account_id);
CREATE INDEX gallery_post_media ON gallery_post (media);

CREATE TABLE gallery_tag (
    tag     TEXT COLLATE "C" NOT NULL,
    post_id TEXT COLLATE "C" NOT NULL REFERENCES gallery_post (id),
    PRIMARY KEY (tag, post_id)
);
CREATE INDEX gallery_tag_post ON gallery_tag (post_id);
