"""Files over HTTP: sends stored files (`media`, `ranges`), makes links to them (`media_links`), and reads uploads
(`upload_parser`)."""
