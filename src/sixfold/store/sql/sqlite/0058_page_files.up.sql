-- Adds the files of pages: images, sound, videos and PDF files that an import stored.
CREATE TABLE page_file (
    page_id    TEXT PRIMARY KEY REFERENCES page (id),
    account_id TEXT NOT NULL,
    file_id    TEXT NOT NULL,
    media_type TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX page_file_account ON page_file (account_id);
