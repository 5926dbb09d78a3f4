"""Creates a tenant as after a year of work: its videos, its snaps with evidence, attributes, words, links and jobs."""

import hashlib
from uuid import UUID

from snapapp.bench.server import Db

# The first video has a third of all snaps, the first animal a tenth; Ana marked half of them. One snap in ten has a
# link; of each hundred one failed and one waits until tomorrow; one was marked every five minutes. Their evidence is
# the JSON of five frames and a clip, because reading and sending it is part of the measurement.
_FILL = """
INSERT INTO operator (id, tenant, email, nickname) OVERRIDING SYSTEM VALUE
VALUES (1000, 'default', 'ana@example.org', 'Ana');
INSERT INTO video (id, tenant, url, url_hash, probe, created_at)
SELECT md5('video ' || n)::uuid, 'default', 'https://cameras.example/brete-' || n || '.mp4',
       sha256(convert_to('video ' || n, 'UTF8')), {probe}, now() - n * interval '8 hours'
  FROM generate_series(0, {videos} - 1) AS n;
INSERT INTO snap (id, tenant, video_id, operator_id, template_id, nickname, email, kind, filmed_at, start_seconds,
                  duration_seconds, clip_seconds, fps, max_width, format, quality, subject_id, subject, ended, error,
                  probe, clip, frames, frame_count, extras, media_prefix, processed_at, resolved_start_seconds,
                  created_at)
SELECT md5('snap ' || n)::uuid, 'default',
       md5('video ' || CASE n % 3 WHEN 0 THEN 0 ELSE n % {videos} END)::uuid, 1000,
       (SELECT id FROM template WHERE tenant = 'default' AND is_default),
       CASE n % 2 WHEN 0 THEN 'Ana' ELSE 'Operator ' || n % 50 END, 'ana@example.org', 'INSTANT',
       now() - n * interval '5 minutes', n % 3600, 1, 1, 5, 1280, 'jpg', 3, animal,
       jsonb_build_object('id', animal, 'attributes', jsonb_build_array(
           jsonb_build_object('key', 'brinco', 'type', 'string', 'stringValue', 'A' || n),
           jsonb_build_object('key', 'sexo', 'type', 'string', 'stringValue', CASE n % 2 WHEN 0 THEN 'F' ELSE 'M' END),
           jsonb_build_object('key', 'peso', 'type', 'number', 'numberValue', 300 + n % 3000 / 10.0))),
       CASE n % 100 WHEN 0 THEN NULL WHEN 1 THEN 'FAILED' ELSE 'COMPLETED' END,
       CASE n % 100 WHEN 1 THEN 'the video is damaged' END, {probe},
       CASE WHEN n % 100 > 1 THEN jsonb '{{"file_name": "snapshot.mp4", "duration_seconds": 1.0}}' END,
       CASE WHEN n % 100 > 1 THEN {frames} END, CASE WHEN n % 100 > 1 THEN 5 ELSE 0 END,
       CASE WHEN n % 100 > 1 THEN {extras} ELSE '{{}}' END,
       CASE WHEN n % 100 > 1 THEN 'snaps/' || md5('snap ' || n) || '/1/' END,
       CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 1 THEN n * 7919 % 3600 END,
       now() - n * interval '5 minutes'
  FROM generate_series(1, {snaps}) AS n
 CROSS JOIN LATERAL (SELECT 'boi-' || CASE n % 10 WHEN 0 THEN 0 ELSE n % 4000 END) AS its (animal);
INSERT INTO share (token, tenant, snap_id)
SELECT md5('share ' || n), 'default', md5('snap ' || n)::uuid FROM generate_series(2, {snaps}, 10) AS n;
INSERT INTO subject_attribute (snap_id, position, tenant, key, type, text_value, number_value)
SELECT md5('snap ' || n)::uuid, position, 'default', key, type, text_value, number_value
  FROM generate_series(1, {snaps}) AS n
 CROSS JOIN LATERAL (VALUES (0, 'brinco', 'string', 'A' || n, NULL),
                            (1, 'sexo', 'string', CASE n % 2 WHEN 0 THEN 'F' ELSE 'M' END, NULL),
                            (2, 'peso', 'number', NULL, 300 + n % 3000 / 10.0))
            AS its (position, key, type, text_value, number_value);
INSERT INTO subject_word (snap_id, word, tenant)
SELECT md5('snap ' || n)::uuid, word, 'default' FROM generate_series(1, {snaps}) AS n
 CROSS JOIN LATERAL (VALUES ('boi'), ('a' || n), (CASE n % 500 WHEN 2 THEN 'manco' ELSE 'sadio' END)) AS its (word);
INSERT INTO snap_processing_job (kind, tenant, snap_id, status, finished_at, next_retry_at)
SELECT 'snap.process', 'default', md5('snap ' || n)::uuid,
       CASE n % 100 WHEN 0 THEN 'PENDING' WHEN 1 THEN 'FAILED' ELSE 'COMPLETED' END,
       CASE WHEN n % 100 > 0 THEN now() END, now() + interval '1 day'
  FROM generate_series(1, {snaps}) AS n;
"""

_PROBE = """jsonb '{"compatible": true, "container_format": "mov,mp4,m4a,3gp,3g2,mj2", "codec_name": "h264",
    "width": 1920, "height": 1080, "duration_seconds": 3600.0, "source_fps": 25.0, "pixel_format": "yuv420p"}'"""
_FRAMES = """(SELECT jsonb_agg(jsonb_build_object('index', i, 'timestamp_seconds', n % 3600 + i / 5.0,
    'file_name', 'frame_0000' || i || '.jpg', 'is_best', i = 3,
    'quality', jsonb '{"black": false, "frozen": false, "blurred": false}')) FROM generate_series(1, 5) AS i)"""
_EXTRAS = """jsonb_build_object('poster', 'poster.jpg', 'thumbnail', 'thumbnail.jpg', 'thumbhash',
    'HBkSHYSIeHiPiHh8eJd4eTN0EEQG', 'artefacts', (SELECT jsonb_agg(jsonb_build_object(
    'file_name', 'frame_0000' || i || '.jpg', 'sha256', encode(sha256(convert_to(n || ' ' || i, 'UTF8')), 'hex')))
    FROM generate_series(1, 5) AS i))"""


def fill(db: Db, *, videos: int, snaps: int) -> None:
    """Runs the statements one by one: together they would be one transaction, and vacuum could not run meanwhile."""
    filled = _FILL.format(videos=videos, snaps=snaps, probe=_PROBE, frames=_FRAMES, extras=_EXTRAS)
    for statement in filled.strip().split(";\n"):
        db.execute(statement.rstrip(";").encode())


def id_of(name: str) -> UUID:
    """The id of `snap 7` (the seventh before the newest) or `video 7`."""
    return UUID(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest())


def token_of(snap: int) -> str:
    return id_of(f"share {snap}").hex
