"""The Model Context Protocol (MCP) server at POST /mcp. See docs/reference/mcp.md."""
