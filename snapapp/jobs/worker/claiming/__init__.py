"""A worker's claim: `next_claim` (when it is due), `bookmarks` (where it looks) and `claimer` (what it asks for, and
what becomes of the answer). Its SQL is in `rows/claim`."""
