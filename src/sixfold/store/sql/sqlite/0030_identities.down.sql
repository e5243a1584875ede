DROP TABLE upload_folder;
DROP TRIGGER account_has_author;
DROP INDEX account_author;
ALTER TABLE account DROP COLUMN author_id;
ALTER TABLE prediction DROP COLUMN keyless;
