"""Rules that are checked without the database: `validation` (of single values), `subjects`, and `snaps`, the only place
for the limits, names and defaults of a snap."""
