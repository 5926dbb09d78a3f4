"""What may be said and asked, decided without any row: `validation` (of any value), `subjects`, and `snaps`, where each
limit, name and default stands once."""
