"""The nouns of the product and their rules: videos, subjects, templates and snaps, the tenants that own them, public
links (`sharing`), lists and searches (`search`) and calls to other services (`webhooks`). The domain knows neither HTTP
nor the queue."""
