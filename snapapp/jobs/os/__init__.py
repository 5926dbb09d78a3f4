"""What needs the operating system: signals, exits, memory, whether a process lives and with whom it dies, and a file
that survives a kill."""
