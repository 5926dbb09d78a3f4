"""The commands that people type, besides those of the queue (`snapapp.jobs.cli`)."""
