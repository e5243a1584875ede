DROP TABLE page_file;
