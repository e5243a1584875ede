-- Adds rates of keys and states of sessions that servers share.
-- What servers that share a database tell each other: how much of its rate a key has used, and where sessions stand.
CREATE TABLE key_rate (
    key_id TEXT NOT NULL,
    kind   TEXT NOT NULL,
    due    INTEGER NOT NULL,
    PRIMARY KEY (key_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_standing (
    session_id TEXT PRIMARY KEY REFERENCES session (id),
    seq        INTEGER NOT NULL,
    standing   BLOB NOT NULL
) STRICT;
