"""LangChain: chat, stream, tool, structured output and embeddings, by OpenAI's and Anthropic's classes."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

ORIGIN, KEY = os.environ["SIXFOLD_URL"], os.environ["SIXFOLD_API_KEY"]
MODEL = os.environ["SIXFOLD_MODEL"]


class Place(BaseModel):
    """A place."""

    city: str


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


chat = ChatOpenAI(model=MODEL, base_url=f"{ORIGIN}/v1", api_key=KEY)
print("chat:", chat.invoke("say 3 words").content)
print("stream:", "".join(part.content for part in chat.stream("say 4 words")))
print("tool:", chat.bind_tools([weather]).invoke("the weather in Oslo").tool_calls[0]["args"])
print("structured:", chat.with_structured_output(Place).invoke("Oslo").city)
responses = ChatOpenAI(model=MODEL, base_url=f"{ORIGIN}/v1", api_key=KEY, use_responses_api=True)
print("responses:", responses.invoke("say 2 words").text)
claude = ChatAnthropic(model=MODEL, base_url=ORIGIN, api_key=KEY, max_tokens=100)
print("anthropic:", claude.invoke("say 3 words").content)
# By default, LangChain downloads a table from OpenAI's site and sends token numbers, which work, too.
embeddings = OpenAIEmbeddings(
    model="embeddings", base_url=f"{ORIGIN}/v1", api_key=KEY, check_embedding_ctx_length=False
)
print("embeddings:", len(embeddings.embed_query("a lighthouse")), "dimensions")
