"""Pictures of every page, for people who have not started it yet: `python -m tests.pictures` starts the product on a
database of its own, lets it work, and writes docs/pictures/; with names it takes only those. It takes some minutes, so
no test does it; one looks whether the pictures are there and small."""
