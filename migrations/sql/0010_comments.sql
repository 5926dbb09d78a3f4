-- So that \d+ explains the domain too.

COMMENT ON TABLE tenant IS 'A customer (assinatura). Its code is its key everywhere; adding one gives it its templates.';
COMMENT ON COLUMN tenant.code IS 'What X-Assinatura-Codigo says.';
COMMENT ON COLUMN tenant.name IS 'For people.';
COMMENT ON COLUMN tenant.token_hash IS 'SHA-256 of its token, which is kept nowhere; null: it has none.';
COMMENT ON COLUMN tenant.status IS 'ACTIVE, or INACTIVE: then it is as if it did not exist.';
COMMENT ON COLUMN tenant.created_at IS 'When it was added.';
COMMENT ON COLUMN tenant.token_changed_at IS 'When it last got a token.';

COMMENT ON TABLE operator IS 'Who marks moments, known by e-mail within a tenant.';
COMMENT ON COLUMN operator.id IS 'Identity.';
COMMENT ON COLUMN operator.tenant IS 'Whose.';
COMMENT ON COLUMN operator.email IS 'As last sent; its case does not matter.';
COMMENT ON COLUMN operator.email_lower IS 'email in lower case: one row for each of a tenant.';
COMMENT ON COLUMN operator.nickname IS 'As last sent; each snap keeps the one it was marked under.';
COMMENT ON COLUMN operator.created_at IS 'When first seen.';
COMMENT ON COLUMN operator.updated_at IS 'When last changed.';

COMMENT ON TABLE template IS 'Which attributes a subject should have.';
COMMENT ON COLUMN template.id IS 'What subjectTemplateId names.';
COMMENT ON COLUMN template.tenant IS 'Whose.';
COMMENT ON COLUMN template.slug IS 'Its name for programs.';
COMMENT ON COLUMN template.name IS 'For people.';
COMMENT ON COLUMN template.fields IS 'A list of {key, type: string or number, required, order, default}.';
COMMENT ON COLUMN template.is_default IS 'Used where a snap names none; one a tenant.';
COMMENT ON COLUMN template.is_active IS 'Whether it can still be named.';
COMMENT ON COLUMN template.created_at IS 'When it was added.';
COMMENT ON COLUMN template.updated_at IS 'When it was last changed.';

COMMENT ON TABLE video IS 'A source of snaps: known by its URL, or uploaded.';
COMMENT ON COLUMN video.id IS 'What videoId names.';
COMMENT ON COLUMN video.tenant IS 'Whose.';
COMMENT ON COLUMN video.url IS 'Where it lies, as sent; null for an upload.';
COMMENT ON COLUMN video.url_hash IS 'SHA-256 of url: one row for each tenant and URL.';
COMMENT ON COLUMN video.storage_key IS 'Where the uploaded bytes are kept; null: they are fetched from url.';
COMMENT ON COLUMN video.file_name IS 'What the uploader called it; shown, never used as a path.';
COMMENT ON COLUMN video.size_bytes IS 'How large the upload is.';
COMMENT ON COLUMN video.sha256 IS 'Of the uploaded bytes: the same ones are kept once.';
COMMENT ON COLUMN video.content_type IS 'What the uploader said it is; not believed.';
COMMENT ON COLUMN video.probe IS 'What was found in it.';
COMMENT ON COLUMN video.created_by IS 'Who brought it.';
COMMENT ON COLUMN video.created_at IS 'When it came.';

COMMENT ON TABLE snap IS 'A marked moment of a video about a subject, and the evidence made of it. What processes it is in snap_job.';
COMMENT ON COLUMN snap.id IS 'What snapId names.';
COMMENT ON COLUMN snap.tenant IS 'Whose.';
COMMENT ON COLUMN snap.video_id IS 'Of which video.';
COMMENT ON COLUMN snap.operator_id IS 'Who marked it.';
COMMENT ON COLUMN snap.template_id IS 'The template that applied.';
COMMENT ON COLUMN snap.nickname IS 'The operators, as it was then.';
COMMENT ON COLUMN snap.nickname_lower IS 'nickname in lower case, for lists.';
COMMENT ON COLUMN snap.email IS 'The operators, as it was then; never shown in public.';
COMMENT ON COLUMN snap.kind IS 'INSTANT (up to 1 s) or INTERVAL.';
COMMENT ON COLUMN snap.is_draft IS 'Marked, but not described yet.';
COMMENT ON COLUMN snap.filmed_at IS 'When it was filmed, as the operator says.';
COMMENT ON COLUMN snap.start_seconds IS 'The moment as asked for, in seconds.';
COMMENT ON COLUMN snap.start_frame IS 'The moment as asked for, as a frame; wins over start_seconds.';
COMMENT ON COLUMN snap.resolved_start_seconds IS 'The moment actually used.';
COMMENT ON COLUMN snap.duration_seconds IS 'How much of it becomes frames.';
COMMENT ON COLUMN snap.clip_seconds IS 'How much of it becomes the clip.';
COMMENT ON COLUMN snap.fps IS 'Frames a second.';
COMMENT ON COLUMN snap.max_width IS 'The widest that a frame may be.';
COMMENT ON COLUMN snap.format IS 'jpg or png.';
COMMENT ON COLUMN snap.quality IS '2 best, 10 smallest; null for png.';
COMMENT ON COLUMN snap.overlay IS 'What is drawn on the frames, as sent.';
COMMENT ON COLUMN snap.subject_id IS 'What it is about: the id sent, else the snaps own.';
COMMENT ON COLUMN snap.subject IS '{"id", "attributes": […]} as sent, or as last corrected.';
COMMENT ON COLUMN snap.ended IS 'COMPLETED, FAILED or CANCELLED; null: see its job in snap_job.';
COMMENT ON COLUMN snap.error IS 'Why it ended without evidence.';
COMMENT ON COLUMN snap.cancelled_by IS 'Who wanted it to stop.';
COMMENT ON COLUMN snap.probe IS 'What was found in the video.';
COMMENT ON COLUMN snap.clip IS 'The clip that was published.';
COMMENT ON COLUMN snap.frames IS 'The frames that were published, in order.';
COMMENT ON COLUMN snap.frame_count IS 'How many they are.';
COMMENT ON COLUMN snap.extras IS 'What else was published: poster, thumbnail, flags, hashes, the settings used.';
COMMENT ON COLUMN snap.media_prefix IS 'Below which its files lie in storage; each attempt writes below its own.';
COMMENT ON COLUMN snap.request_id IS 'The request that made it.';
COMMENT ON COLUMN snap.created_at IS 'When it was marked.';
COMMENT ON COLUMN snap.updated_at IS 'When the row was last changed.';
COMMENT ON COLUMN snap.processed_at IS 'When it ended.';
COMMENT ON COLUMN snap.hidden_at IS 'Since when its tenant does not see it any more; its links go on.';

COMMENT ON TABLE subject_attribute IS 'The attributes of snaps, one a row, for searching: snap.subject has them as sent.';
COMMENT ON COLUMN subject_attribute.snap_id IS 'Of which snap.';
COMMENT ON COLUMN subject_attribute.position IS 'Its place among them, from 0.';
COMMENT ON COLUMN subject_attribute.tenant IS 'Whose.';
COMMENT ON COLUMN subject_attribute.key IS 'As sent.';
COMMENT ON COLUMN subject_attribute.key_lower IS 'key in lower case.';
COMMENT ON COLUMN subject_attribute.type IS 'string or number.';
COMMENT ON COLUMN subject_attribute.text_value IS 'The value of a string.';
COMMENT ON COLUMN subject_attribute.text_head IS 'Its first 200 characters, which an index can hold.';
COMMENT ON COLUMN subject_attribute.number_value IS 'The value of a number, to 15 digits.';

COMMENT ON TABLE subject_word IS 'Every word said of a subject, in lower case without accents: what free text search looks in.';
COMMENT ON COLUMN subject_word.snap_id IS 'Of which snap.';
COMMENT ON COLUMN subject_word.word IS 'A word of its id or attributes.';
COMMENT ON COLUMN subject_word.tenant IS 'Whose.';

COMMENT ON TABLE share IS 'Public links. One of a snap is in force at a time; the others are dead for ever.';
COMMENT ON COLUMN share.token IS 'The secret part of the link.';
COMMENT ON COLUMN share.tenant IS 'Whose.';
COMMENT ON COLUMN share.snap_id IS 'Of which snap.';
COMMENT ON COLUMN share.created_at IS 'When it was made.';
COMMENT ON COLUMN share.expires_at IS 'Until when it works; null: for ever.';
COMMENT ON COLUMN share.revoked_at IS 'When it was revoked.';

COMMENT ON TABLE correction IS 'How subjects were corrected before they were shared; nothing here is ever changed.';
COMMENT ON COLUMN correction.id IS 'Identity.';
COMMENT ON COLUMN correction.tenant IS 'Whose.';
COMMENT ON COLUMN correction.snap_id IS 'Of which snap.';
COMMENT ON COLUMN correction.by IS 'Who corrected it.';
COMMENT ON COLUMN correction.at IS 'When.';
COMMENT ON COLUMN correction.before IS 'The subject before.';
COMMENT ON COLUMN correction.after IS 'The subject after.';

COMMENT ON TABLE idempotency IS 'Idempotency keys of the last 24 hours, and the snaps that they made.';
COMMENT ON COLUMN idempotency.tenant IS 'Whose.';
COMMENT ON COLUMN idempotency.key IS 'As sent.';
COMMENT ON COLUMN idempotency.body_hash IS 'SHA-256 of the request: another one with this key is refused.';
COMMENT ON COLUMN idempotency.snap_id IS 'What it made.';
COMMENT ON COLUMN idempotency.created_at IS 'When.';

COMMENT ON TABLE webhook IS 'Whom to tell when something happened.';
COMMENT ON COLUMN webhook.id IS 'Identity.';
COMMENT ON COLUMN webhook.tenant IS 'Whose.';
COMMENT ON COLUMN webhook.url IS 'Where to.';
COMMENT ON COLUMN webhook.secret IS 'Signs what is sent, so it is kept readable; shown once.';
COMMENT ON COLUMN webhook.events IS 'What of.';
COMMENT ON COLUMN webhook.is_active IS 'Whether anything is sent.';
COMMENT ON COLUMN webhook.created_at IS 'When it was added.';
COMMENT ON COLUMN webhook.updated_at IS 'When it was last changed.';

COMMENT ON VIEW snap_job IS 'The newest job of each snap, of the tenant in the setting snapapp.tenant only.';
COMMENT ON FUNCTION snap_ends_with_its_job IS 'Copies how a job FAILED or was CANCELLED to its snap, unless the snap has evidence already.';
COMMENT ON FUNCTION snap_waits_with_its_job IS 'A snap whose job is retried or replayed waits again.';
COMMENT ON FUNCTION tenant_begins_with_templates IS 'Gives a new tenant the templates default and gado.';
COMMENT ON POLICY its_own ON snap IS 'Only rows of the tenant in the setting snapapp.tenant; none where it is not set. So on every table here.';
