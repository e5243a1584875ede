DROP INDEX prediction_gateway;
