"""Model servers that hold a conversation: three protocols, and how they are reached."""
