"""Attachments by reference: rows say where the bytes are, stores that the settings allow hold them."""
