DROP TABLE graph_forgotten;
