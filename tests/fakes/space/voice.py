"""A module beside the application, as many have."""


def loud(words: str) -> str:
    return words.upper()
