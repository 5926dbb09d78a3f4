"""Who may change what. An operator changes only what they marked or added themselves, a reviewer and an admin whatever
is the tenant's, an admin its settings too. `None` is the tenant's own token, which may do everything. All may read what
the tenant has."""

from snapapp.domain.tables import Operator, OperatorRole
from snapapp.errors import NotAllowed


def may_change_all(who: Operator | None) -> bool:
    return who is None or who.role in (OperatorRole.REVIEWER, OperatorRole.ADMIN)


def require_own(who: Operator | None, added_by: int | None) -> None:
    """Raises where a snap or a video, added by the operator with this id, is not to be changed."""
    if not may_change_all(who) and (who is None or who.id != added_by):
        raise NotAllowed("Somebody else added this: ask them, a reviewer or an admin to change it")


def may_change_settings(who: Operator | None) -> bool:
    return who is None or who.role is OperatorRole.ADMIN


def require_settings(who: Operator | None) -> None:
    """Raises where the tenant's settings (its operators and webhooks) are neither to be seen nor to be changed."""
    if not may_change_settings(who):
        raise NotAllowed("Only an admin may see and change this")


def require_name(who: Operator | None, nickname: str | None, email: str | None = None) -> None:
    """Raises where a request gives another name or e-mail than who is signed in. What it does not give is None."""
    if who is None:
        return
    is_theirs = nickname in (None, who.nickname) and (email is None or email.lower() == who.email.lower())
    if not is_theirs:
        raise NotAllowed(f"You are signed in as {who.nickname} <{who.email}>: do it in that name, or sign out")
