DROP INDEX prediction_free_bytes;
