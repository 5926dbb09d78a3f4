"""Where the queue's statements are, and the functions that run them: what the lab breaks, cuts and writes down."""

from types import ModuleType

from snapapp.jobs.rows import claim, leases, lifecycle, limits, notes, settle


def home(name: str) -> ModuleType:
    return next(module for module in (claim, leases, lifecycle, limits, notes, settle) if hasattr(module, name))
