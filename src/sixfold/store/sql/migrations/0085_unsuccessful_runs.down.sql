DROP INDEX prediction_unsuccessful;
