"""The chat page: threads with models, streamed, stored as conversations and charged by the gateway."""
