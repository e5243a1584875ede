"""OpenAI's Responses API: requests and responses, their events, and stored responses."""
