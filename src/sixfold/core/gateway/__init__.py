"""The relay: calls of model servers that stream; held, passed on, captured, without a queue or a worker."""
