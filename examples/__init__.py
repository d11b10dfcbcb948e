"""Runnable examples: a shop that sends its mail through the outbox, and a demo that runs the whole system around it."""
