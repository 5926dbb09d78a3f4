"""Every statement on the queue's tables, by what it is for. Each takes the caller's connection and never commits.

The way of a row: `lifecycle` (what people and callers do with it), `claim`, `leases`, `notes` (what it says), `settle`,
`costs`, `retention`. Around it: `limits`, `roster` (who works). What people see of it and do to many: `people`.
`database`: connections.
"""
