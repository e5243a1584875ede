"""`import`: convert the configuration of another gateway, and import chats and documents."""
