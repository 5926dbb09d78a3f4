"""What needs the operating system: signals, exits, memory, threads that may hang, whether a process lives and with whom
it dies, and a file that survives a kill."""
