"""The nouns of the product and their rules: videos, subjects, templates, snaps; whose they are (`tenants`), who may see
them (`sharing`), how they are found (`search`) and who is told (`webhooks`). None of them knows HTTP or the queue."""
