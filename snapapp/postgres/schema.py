"""Whether a database has the schema that this code needs: the queue's, and where it is wanted the product's."""

from snapapp.errors import MigrationError
from snapapp.jobs import schema
from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.schema import QUEUE, History

PRODUCT = History("product", "product_version")


def histories(*, product: bool = True) -> tuple[History, ...]:
    return (QUEUE, PRODUCT) if product else (QUEUE,)


def wanted(*, product: bool = True) -> dict[str, str]:
    """The newest revision that the code knows, by the table where a database keeps its own."""
    return {history.version_table: history.head for history in histories(product=product)}


def is_current(url: str, *, product: bool = True) -> bool:
    try:
        return schema.is_current(url, *histories(product=product))
    except MigrationFailed as error:
        raise MigrationError(str(error)) from error


def require(url: str, *, product: bool = True) -> None:
    if not is_current(url, product=product):
        raise MigrationError("The database does not have the schema that this code needs: type `snapapp migrate`.")
