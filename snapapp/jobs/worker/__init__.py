"""The worker: claims jobs, runs them on its slots, settles them, and gives back what it cannot finish.

The way of a job: `wakeup` (the queue has news), `claimer` (how many, and which), `slots` (run it), `begin` (may it?),
`conclusion` (its end), then `finish` (with a hook) or `settler` (in batches). What a claim depends on: `capacity`. What
keeps a job ours: `leases`, `watchdog` (its time). What a job may use meanwhile: `connections`, `engines`, `notes`.
`parts` is what these share; `duties` calls them on time, `worker` holds them all, `introduction` is what it says of
itself.
"""
