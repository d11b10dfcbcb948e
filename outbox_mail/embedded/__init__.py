"""Private PostgreSQL and Redis servers for the demo and the tests: no Docker, no system service, standard library only.

Both listen on 127.0.0.1 only and want a password. They die with the process that started them, however it dies.
"""

from outbox_mail.embedded.postgres import PostgresServer
from outbox_mail.embedded.redis import RedisServer

__all__ = ["PostgresServer", "RedisServer"]
