"""Tools of MCP servers for the chats of the browser."""
