"""Tools of the operator's MCP servers in responses."""
