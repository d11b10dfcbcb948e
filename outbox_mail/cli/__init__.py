"""The command ``outbox-mail``: a thin face on ``outbox_mail.operations``."""
