-- Adds the names of uploaded files, and the pictures of results without files and of shares.
ALTER TABLE media ADD COLUMN file_name TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE TABLE run_drawing (
    prediction_id TEXT COLLATE "C" PRIMARY KEY REFERENCES prediction (id) ON DELETE CASCADE,
    image         BYTEA NOT NULL
);
-- `digest` identifies what the picture shows: a share of a page or workflow shows its current version.
CREATE TABLE share_card (
    share_id TEXT COLLATE "C" PRIMARY KEY REFERENCES share (id) ON DELETE CASCADE,
    digest   BYTEA NOT NULL,
    image    BYTEA NOT NULL
);
