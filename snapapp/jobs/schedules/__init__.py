"""Schedules, which enqueue jobs at given times: `declared` (a schedule, checked), `slots` (when it is due; pure
functions), `ledger` (the record of each slot in the database), `scheduler` (the thread that looks for due slots) and
`views` (what people see)."""
