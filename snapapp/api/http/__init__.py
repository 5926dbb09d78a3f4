"""What all routes share: schemas, errors, paging, ranges, uploads, whose request it is."""
