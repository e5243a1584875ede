-- Adds the search index of the memory.
-- What search keeps of each page. A server holds an account's rows in memory as an index and asks, at every
-- search, for those with a higher `change`: the numbers of one account come in the order of its commits.

CREATE TABLE memory_change (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    change     INTEGER NOT NULL CHECK (change > 0)
) STRICT, WITHOUT ROWID;

-- `entry` is a page in the form of core/memory/indexing/entries.py, '' once the page is gone; `embedded` is the
-- model whose vectors stand in memory_vector for it.
CREATE TABLE memory_index (
    page_id    TEXT PRIMARY KEY REFERENCES page (id),
    account_id TEXT NOT NULL,
    change     INTEGER NOT NULL,
    entry      TEXT NOT NULL,
    embedded   TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX memory_index_change ON memory_index (account_id, change, page_id);
CREATE INDEX memory_index_waiting ON memory_index (page_id) WHERE embedded = '' AND entry <> '';

-- One row to a page: the vectors of its passages as 16-bit floats, one after the other,
-- and the change of the text that they are of.
CREATE TABLE memory_vector (
    page_id    TEXT PRIMARY KEY REFERENCES page (id),
    account_id TEXT NOT NULL,
    change     INTEGER NOT NULL,
    of_change  INTEGER NOT NULL,
    model      TEXT NOT NULL,
    vectors    BLOB NOT NULL
) STRICT;
CREATE INDEX memory_vector_change ON memory_vector (account_id, change, page_id);
