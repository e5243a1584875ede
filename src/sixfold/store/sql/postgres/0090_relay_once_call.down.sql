DROP INDEX relay_once_call;
