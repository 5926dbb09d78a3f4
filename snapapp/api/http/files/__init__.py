"""Files over HTTP: how stored ones are answered (`media`, `ranges`), linked (`media_links`), and uploads read."""
