CREATE INDEX relay_call_age ON relay_call (created_at);
CREATE INDEX relay_call_running ON relay_call (created_at) WHERE state = 'running';
