"""Files of `/v1/files` in the formats of OpenAI and Anthropic, and uploads in parts."""
