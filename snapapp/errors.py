"""What can go wrong in snapapp itself, as people read it. The queue's own errors are in jobs/errors.py."""


class SnapError(Exception):
    """The root of the application's errors: the message is meant for a person and names the thing and its value."""


class SettingsError(SnapError):
    """The environment holds settings that cannot be used; every mistake is named at once."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("Wrong settings:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes))


class PostgresError(SnapError):
    """The embedded PostgreSQL cannot be started, adopted or stopped."""


class MigrationError(SnapError):
    """The database cannot be brought to the schema that this code needs."""
