"""The product: a router for each noun of /v2, and the pages that come with it."""
