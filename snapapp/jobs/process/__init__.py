"""A worker in a process: `runtime` builds workers, `foreground` runs one as a process of its own, `embedding` runs one
inside an application, `kinds` lists the kinds of jobs that the process knows."""
