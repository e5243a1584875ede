"""Module that the application imports."""


def loud(words: str) -> str:
    return words.upper()
