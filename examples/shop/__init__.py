"""A small shop on SQLAlchemy. Every mail that it owes is a row in the transaction that owes it.

Read ``checkout.py`` first. The shop knows nothing of relays, workers, brokers or SMTP servers.
"""
