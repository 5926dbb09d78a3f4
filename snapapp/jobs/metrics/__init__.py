"""Numbers for those who watch: `work` is what the worker of this process did, `depth` how full the queues are,
`exposition` the text that Prometheus reads. And `log_lines`: what is told, as lines."""
