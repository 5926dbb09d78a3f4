"""Routes on videos: `videos` (listed, shown, played, removed), `uploads` and `resumable_uploads` (how bytes come in; in
parts: `upload_pieces`), `remote_videos` (added by address) and `remote_playback` (played from where they are)."""
