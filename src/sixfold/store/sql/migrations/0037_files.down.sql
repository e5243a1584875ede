DROP TABLE file_part;
DROP TABLE file_upload;
DROP TABLE account_file;
