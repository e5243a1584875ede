"""A chat with OpenAI's client that recalls before each turn and remembers after it."""

import os

import httpx
from openai import OpenAI

url, key = os.environ["SIXFOLD_URL"], os.environ["SIXFOLD_API_KEY"]
client = OpenAI(base_url=f"{url}/v1", api_key=key, default_headers={"X-Sixfold-Memory": "*; tokens=1500"})


def chat(prompt: str) -> str:
    """Return the answer to a prompt, and store the facts of both."""
    messages = [{"role": "user", "content": prompt}]
    completion = client.chat.completions.create(model=os.environ["SIXFOLD_MODEL"], messages=messages)
    answer = completion.choices[0].message.content
    turn = {"messages": [*messages, {"role": "assistant", "content": answer}], "source": "chat"}
    headers = {"Authorization": f"Bearer {key}"}
    httpx.post(f"{url}/api/remember", json=turn, headers=headers, timeout=120).raise_for_status()
    return answer


if __name__ == "__main__":
    print(chat("Where does Ann work?"))
