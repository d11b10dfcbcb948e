"""The whole system on one machine: PostgreSQL, Redis, relay, worker, beat, Flower, an SMTP server, and a shop."""
