"""Pages that the server makes, so that they work without scripts: `language` says in which words, `operator` has two
moments side by side and everything of one subject."""
