-- Every call pays for each index twice. An id tells the age of a call, and one under way has a pending hold.
DROP INDEX relay_call_age;
DROP INDEX relay_call_running;
