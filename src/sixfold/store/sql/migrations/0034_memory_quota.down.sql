ALTER TABLE memory_usage DROP COLUMN bytes;
ALTER TABLE memory_usage DROP COLUMN pages;
