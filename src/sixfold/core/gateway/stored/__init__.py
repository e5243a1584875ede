"""What accounts store of their chats: responses, conversations, and objects of model servers."""
