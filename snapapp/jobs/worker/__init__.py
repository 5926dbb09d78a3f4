"""The worker: claims jobs, runs them on its slots, settles them, and gives back what it cannot finish.

A job passes through these files in this order: `wakeup` hears that the queue has work; of `claiming`, `next_claim` says
when to look for it, `bookmarks` where, and `claimer` decides how many jobs of which kinds to take; `slots` runs each
job; `begin` decides whether a claimed job may still start; `finish` reports how the attempt ended; `hooks` (jobs with a
hook) or `settler` (all others, in batches) writes the end down.

`capacity` limits what the worker claims. `leases` and `watchdog` keep a job's lease and its deadline. `connections`,
`engines` and `notes` serve running jobs. `parts` holds what these files share, `duties` calls them on time, `worker`
wires them together, and `self_description` is what the worker tells others about itself.
"""
