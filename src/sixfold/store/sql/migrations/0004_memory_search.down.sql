DROP TABLE memory_vector;
DROP TABLE memory_index;
DROP TABLE memory_change;
