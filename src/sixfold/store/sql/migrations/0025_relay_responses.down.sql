DROP TABLE relay_response;
