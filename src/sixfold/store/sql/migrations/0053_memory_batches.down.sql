ALTER TABLE page_version DROP COLUMN on_behalf_of;
DROP TABLE memory_batch_page;
DROP TABLE memory_batch;
