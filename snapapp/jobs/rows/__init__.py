"""Every statement on the queue's tables, by what it is for. Each takes the caller's connection and never commits.

In the order of a job's life: `lifecycle` (people and callers enqueue, cancel, retry), `claim`, `leases`, `notes` (its
progress and log lines), `settle`, `costs`, `retention`. Beside it: `limits`, `roster` (the workers), `backends` (the
server's processes that run jobs' statements), `people` (what people look at and change), `database` (connections).
"""
