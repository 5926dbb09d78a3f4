"""Decoding, apart from everything: a stranger's video is read by a process that can do nothing but read it.

A child of the worker opens the video and keeps what is made of it; it may have the bucket's key and the network, and
never decodes. It starts a fork server, which knows how to decode, has no secret in its memory and never sees a video.
For each job that forks a decoder, which shuts itself in before it reads the first byte: it has the video, two files to
write into and a line to the child, which fetches for it what lies elsewhere. It serves one job, so that a video which
takes it over finds nothing of anybody else.

To be read: `client` (the child's side), `fork_server`, `desk` (a decoder's life), `work` (what it can make), `wire`
(how they speak), `walls` (what shuts a decoder in). Importing this package imports none of them.
"""
