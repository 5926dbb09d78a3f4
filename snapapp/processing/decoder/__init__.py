"""Decoding in a sandbox: a video from outside is read by a process that can do nothing but read it.

A child process of the worker opens the video and stores the results; it may have the bucket's key and the network, and
never decodes. It starts a fork server, which has the decoding libraries loaded, has no secret in its memory and never
sees a video. For each job the fork server forks a decoder, which shuts itself in before it reads the first byte. A
decoder has the video, two files to write into and a connection to the child, which reads remote videos for it. It
serves one job, so that a video which takes the decoder over finds nothing of another job.

Read `client` (the child's side), `fork_server`, `process` (a decoder's life), `work` (what a decoder can make),
`protocol` and `sandbox`. Importing this package imports none of them.
"""
