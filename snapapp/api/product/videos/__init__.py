"""Routes on videos: `videos` (lists, shows, plays and removes them), `uploads` and `resumable_uploads` (receive them,
the latter in parts, with `upload_pieces`), `remote_videos` (adds them by address) and `remote_playback` (plays remote
ones)."""
