"""The chat page: chats with models, streamed, stored as conversations and charged by the gateway."""
