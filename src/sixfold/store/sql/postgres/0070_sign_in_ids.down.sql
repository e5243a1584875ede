DROP INDEX signin_id;
