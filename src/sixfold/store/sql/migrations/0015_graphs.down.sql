DROP TABLE graph_outcome;
DROP TABLE graph_file;
