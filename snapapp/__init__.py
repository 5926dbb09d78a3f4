"""snapapp: a monolith that serves an API and works a PostgreSQL job queue in one process."""

__version__ = "0.1.0"
