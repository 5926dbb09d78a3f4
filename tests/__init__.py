"""The tests: folders as in snapapp/; what breaks things on purpose and at length is in labs/."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
