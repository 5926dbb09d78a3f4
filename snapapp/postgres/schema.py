"""Compares a database with the schema that this code needs: the queue's, and the product's if that is wanted."""

from snapapp.errors import MigrationError
from snapapp.jobs import schema
from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.schema import QUEUE, History

PRODUCT = History("product", "product_version")


def histories(*, product: bool = True) -> tuple[History, ...]:
    return (QUEUE, PRODUCT) if product else (QUEUE,)


def wanted(*, product: bool = True) -> dict[str, str]:
    """The newest revisions in this code, by the name of the table that holds a database's revision."""
    return {history.version_table: history.head for history in histories(product=product)}


def trouble(url: str, *, product: bool = True) -> str | None:
    """Why this code does not go with the database, and what to do; None: it does."""
    try:
        found = schema.revisions(url, *histories(product=product))
    except MigrationFailed as error:
        raise MigrationError(str(error)) from error
    for history, revision in found.items():
        if schema.is_newer(revision, history.head):
            return (
                f"The database is at revision {revision} of the {history.name}, and this code knows {history.head}: a "
                "newer release has migrated it. Run that release."
            )
    if any(revision != history.head for history, revision in found.items()):
        return "The database does not have the schema that this code needs: type `snapapp migrate`."
    return None


def is_current(url: str) -> bool:
    return trouble(url) is None


def require(url: str, *, product: bool = True) -> None:
    if why := trouble(url, product=product):
        raise MigrationError(why)
