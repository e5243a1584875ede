"""A timeline's project rendered: pictures, words and sounds of many clips into one film."""
