"""Child processes on the nodes of a Dask cluster. In reading order: `cluster` (the worker's connection to the
scheduler, and places on nodes), `remote` (a slot, which watches an attempt on a node), `executor` (the slots), `node`
(what runs on a node), `look` (for the doctor). All import Dask, an extra, so they are imported only where a cluster is
configured.
"""
