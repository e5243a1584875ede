-- Adds the files of pages: images, sound, videos and PDF files that an import stored.
CREATE TABLE page_file (
    page_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES page (id),
    account_id TEXT COLLATE "C" NOT NULL,
    file_id    TEXT COLLATE "C" NOT NULL,
    media_type TEXT COLLATE "C" NOT NULL
);
CREATE INDEX page_file_account ON page_file (account_id);
