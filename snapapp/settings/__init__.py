"""The settings of snapapp: `table` names them all, `types` reads and checks their values, `loading` takes them from the
environment and from the file that `env_file` reads. `explained` shows them to people; `traces` are OpenTelemetry's."""
