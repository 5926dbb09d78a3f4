"""The product's job kinds: the only package that knows both the queue and the snaps.

Read `loading` (what a process knows of them), `processors` (the kinds), `ends` (what the end of each changes),
`media_work` (what a child does with a video), `decoder` (who decodes it), `child_settings` (under which settings),
`scratch` (folders for work in progress), `webhook_delivery` (telling others), `sweep` (cleaning up), `queue` (what the
domain may ask of the queue). Importing the package imports none of them: a decoder knows nothing of the queue."""
