"""SMTP (RFC 5321) over sockets of our own: a total deadline on each send, kept connections, PIPELINING.

``provider.py`` is the entrance; below it ``session.py`` (one connection and its mails), ``handshake.py`` (from connect
to AUTH), ``envelope.py`` (what goes out), ``replies.py`` (what comes back and what it means), ``wire.py`` (bytes).
"""
