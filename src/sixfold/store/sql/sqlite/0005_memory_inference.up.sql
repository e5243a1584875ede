-- Adds statements and names found in memory pages.
-- What pages state in plain sentences, and the names that pages answer to. The links that follow from both
-- stand in page_link, with the maker `inference`.

-- `rank` is how well a name fits: 0 its slug, 1 title, 2 alias, 3 last segment, 4 first or last name of a person.
CREATE TABLE memory_name (
    account_id TEXT NOT NULL,
    name       TEXT NOT NULL,
    page_id    TEXT NOT NULL REFERENCES page (id),
    rank       INTEGER NOT NULL,
    PRIMARY KEY (account_id, name, page_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_name_page ON memory_name (page_id);

-- `subject` and `object` are keys of names; their ids are NULL until there is a page that they name.
-- `said` is an object that is no name, in words; `start` is where the sentence begins in the page's body.
CREATE TABLE memory_statement (
    page_id    TEXT NOT NULL REFERENCES page (id),
    number     INTEGER NOT NULL,
    account_id TEXT NOT NULL,
    relation   TEXT NOT NULL,
    pattern    TEXT NOT NULL,
    subject    TEXT NOT NULL,
    subject_id TEXT,
    object     TEXT NOT NULL,
    object_id  TEXT,
    said       TEXT NOT NULL,
    sentence   TEXT NOT NULL,
    start      INTEGER NOT NULL,
    moment     TEXT NOT NULL,
    PRIMARY KEY (page_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_statement_subject ON memory_statement (account_id, subject);
CREATE INDEX memory_statement_object ON memory_statement (account_id, object);
CREATE INDEX memory_statement_subject_id ON memory_statement (subject_id, page_id) WHERE subject_id IS NOT NULL;
CREATE INDEX memory_statement_object_id ON memory_statement (object_id, page_id) WHERE object_id IS NOT NULL;
