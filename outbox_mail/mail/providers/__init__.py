"""One file per provider; ``registry.py`` makes one from its URL."""
