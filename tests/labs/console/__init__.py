"""Labs of /ops: `bulk` (a hundred thousand dead letters retried from the page), `scale` (ten million rows, fifty
workers, twenty viewers) and `faults` (what whoever is on call is told of ten faults)."""
