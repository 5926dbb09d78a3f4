"""Other queues in Python, each as its own guides advise, for `snapapp bench --versus`; a module a peer."""
