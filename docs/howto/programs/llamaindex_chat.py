"""LlamaIndex: chat, stream, completion, structured output and embeddings."""

import os

from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

BASE, KEY = f"{os.environ['SIXFOLD_URL']}/v1", os.environ["SIXFOLD_API_KEY"]
MODEL = os.environ["SIXFOLD_MODEL"]

chat = OpenAILike(model=MODEL, api_base=BASE, api_key=KEY, is_chat_model=True, is_function_calling_model=True)
messages = [ChatMessage(role="user", content="say 3 words")]
print("chat:", chat.chat(messages).message.content)
print("stream:", "".join(part.delta or "" for part in chat.stream_chat(messages)))
# Without is_chat_model, LlamaIndex uses /v1/completions.
print("completion:", OpenAILike(model=MODEL, api_base=BASE, api_key=KEY).complete("say 2 words").text)
embeddings = OpenAILikeEmbedding(model_name="embeddings", api_base=BASE, api_key=KEY)
print("embeddings:", len(embeddings.get_text_embedding("a lighthouse")), "dimensions")
