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


def is_current(url: str, *, product: bool = True) -> bool:
    try:
        return schema.is_current(url, *histories(product=product))
    except MigrationFailed as error:
        raise MigrationError(str(error)) from error


def require(url: str, *, product: bool = True) -> None:
    if not is_current(url, product=product):
        raise MigrationError("The database does not have the schema that this code needs: type `snapapp migrate`.")
