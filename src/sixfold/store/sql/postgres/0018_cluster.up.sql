-- Adds rates of keys and states of sessions that servers share.
-- What servers that share a database tell each other: how much of its rate a key has used, and where sessions stand.
CREATE TABLE key_rate (
    key_id TEXT COLLATE "C" NOT NULL,
    kind   TEXT COLLATE "C" NOT NULL,
    due    BIGINT NOT NULL,
    PRIMARY KEY (key_id, kind)
);

CREATE TABLE session_standing (
    session_id TEXT COLLATE "C" PRIMARY KEY REFERENCES session (id),
    seq        BIGINT NOT NULL,
    standing   BYTEA NOT NULL
);
