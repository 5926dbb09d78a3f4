"""What all routes share: schemas, errors, paging, byte ranges, uploads, and which tenant a request is of."""
