-- Adds indexes of calls of the gateway.
-- Calls are found by their ids, which sort by time, and those under way by their holds.
DROP INDEX relay_call_age;
DROP INDEX relay_call_running;
