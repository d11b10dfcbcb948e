"""An SMTP server that keeps account of every mail it accepts, and misbehaves as told.

In a test: ``with Sink() as sink: provider_from_url(sink.url)``. As a process of its own:
``python -m outbox_mail.testing.sink --port 0 --journal FILE``. For 127.0.0.1 only: it takes mail from anybody.
"""

from outbox_mail.testing.sink.behaviour import Behaviour, Fault, Step, Way
from outbox_mail.testing.sink.server import Accepted, Sink

__all__ = ["Accepted", "Behaviour", "Fault", "Sink", "Step", "Way"]
