DROP INDEX prediction_training;
