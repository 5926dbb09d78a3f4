"""A module that cannot be imported, for workers that never come to work."""

raise RuntimeError("this release is broken")
