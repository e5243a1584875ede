DROP TABLE graph_source;
