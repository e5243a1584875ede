"""The hosted tool protocol: what agents call at POST /mcp. See docs/reference/mcp.md."""
