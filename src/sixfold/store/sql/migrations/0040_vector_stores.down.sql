DROP TABLE vector_store_batch;
DROP TABLE vector_store_chunk;
DROP TABLE vector_store_file;
DROP TABLE vector_store;
