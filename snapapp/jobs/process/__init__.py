"""A worker in a process: what it is made of (`runtime`), in one of its own (`foreground`), in yours (`embedding`), and
which kinds of jobs it knows (`kinds`)."""
