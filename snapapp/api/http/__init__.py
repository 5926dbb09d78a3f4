"""What all routes share: schemas, errors, paging, byte ranges, uploads, streams of events, and which tenant a request
is of."""
