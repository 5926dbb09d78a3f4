"""A fleet: many worker processes, on one host or several. A supervisor on each host starts them, replaces them, scales
their pools and carries out commands.

Read it in this order: `plan` and `plan_file` (which pools should run), `supervisor` (the main thread of the
supervisor's process), `pool` (starts and retires workers until a pool has as many as it wants), `launcher` and
`fork_server` (how a worker process is started), `worker_process` (what runs in it), `database_thread` (the supervisor's
other thread, which does all that needs the database), `scaling` (how many processes a pool should have; pure
functions), `commands`, `store` and `overview` (every SQL statement). docs/fleet.md is for operators.

Each kind of message has one channel. A worker writes its state, and the supervisor the reason why it should leave, in a
state file (`os/state_file`). The supervisor pauses, resumes, retires and stops a worker by signals, and starts one
through the fork server's pipes. The kernel tells the supervisor when a worker ends. Everybody else reads the tables.
"""
