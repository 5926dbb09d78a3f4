"""The commands of `snapapp`. The queue's own commands are in `snapapp.jobs.cli`."""
