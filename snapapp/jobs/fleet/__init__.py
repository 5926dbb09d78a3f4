"""Many worker processes on one host or many, where one process is not enough: kept alive, replaced, scaled, steered.

Read it in this order: `plan` and `plan_file` (what should run), `supervisor` (the main thread of the one process that
starts the others), `pool` (what should run against what does), `launcher` and `fork_server` (how a worker process is
started), `worker_process` (what it does when it has been), `database_thread` (the supervisor's other thread: all that
needs the database), `scaling` (how many, pure), `commands`, `store` and `overview` (every statement). docs/fleet.md is
for people.

News goes one way each. How a worker stands, and why it should go: its state file (`os/state_file`). To pause, go on,
finish or end: a signal. To start one: the fork server's pipes. Its end: the kernel tells its parent. For everybody
else: the tables.
"""
