DROP INDEX graph_file_number;
ALTER TABLE graph_file DROP COLUMN number;
ALTER TABLE graph_file DROP COLUMN stem;
