"""What a tenant may have only so many of: whoever counts them to add one takes a turn first, because two at once would
each count without the other's."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def take(db: Session, tenant: str, what: str) -> None:
    """Makes others of the tenant that take this turn wait until this transaction ends. What is counted is read in a
    later statement, which sees what the one before has added."""
    db.execute(select(func.pg_advisory_xact_lock(func.hashtext(what), func.hashtext(tenant))))
