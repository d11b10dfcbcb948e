"""Templates in folders, rendered at send time in a sandbox whose every render is bounded."""

from outbox_mail.mail.templates.budget import Limits
from outbox_mail.mail.templates.library import TemplatePolicy, Templates

__all__ = ["Limits", "TemplatePolicy", "Templates"]
