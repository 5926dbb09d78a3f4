"""Rules that are checked without the database: `validation` (of single values), `texts`, `subjects`, `rights` (who may
change what), and `snaps`, the only place for the limits, names and defaults of a snap."""
