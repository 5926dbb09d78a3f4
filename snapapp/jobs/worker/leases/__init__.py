"""Leases: `held` (the jobs that this worker holds, and whether their leases are still certain), `heartbeat` (extends
the leases in the database), `recovery` (takes back jobs of dead workers, and deletes old rows)."""
