"""What e-mail adds to the outbox: messages, enqueue, templates, composing, providers, attachments, delivery."""
