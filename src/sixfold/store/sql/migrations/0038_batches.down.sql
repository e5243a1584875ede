DROP TABLE batch_line;
DROP TABLE batch;
