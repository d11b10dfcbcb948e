"""The relay: a process that reads due rows and hands their ids to the broker. Start with ``loop.py``."""
