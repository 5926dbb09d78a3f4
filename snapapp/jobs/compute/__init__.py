"""Children on the nodes of a Dask cluster. Read `cluster` (the worker's connection to the scheduler, and places on
nodes), `remote` (the slot that watches an attempt there), `executor`, `node` (the other side), `look` (what the doctor
asks). All of them import Dask, which is an extra; so nothing imports them but where a cluster is set."""
