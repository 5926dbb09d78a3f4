"""The product's job kinds. Only this package knows both the queue and the snaps.

Read `loading` (imports the kinds into a process), `processors` (declares the kinds), `ends` (what the end of each job
changes), `media_work` (what a child process does with a video), `decoder` (the processes that decode it),
`child_settings` (a child's settings), `scratch` (folders for work in progress), `webhook_delivery` (calls webhooks),
`sweep` (cleans up), `queue` (the queue's functions for the domain), `checks` (what the doctor asks of the product).
Importing the package imports none of these modules, because a decoder must not load the queue."""
