"""Videos of every kind a phone, a camera or an enemy sends, made here, and what must hold for each of them.

`python -m tests.labs media --mutants 2000` breaks them at random; `--speed` measures against the usual three commands.
Read: `material` (the videos), `reading` (which frame a picture shows), then the tests.
"""
