CREATE TABLE subject_word (
    snap_id uuid NOT NULL,
    word    text NOT NULL COLLATE "C",
    tenant  text NOT NULL COLLATE "C",

    PRIMARY KEY (snap_id, word),
    FOREIGN KEY (tenant, snap_id) REFERENCES snap (tenant, id) ON DELETE CASCADE,
    CONSTRAINT word_is_short CHECK (length(word) BETWEEN 1 AND 60)
);

CREATE INDEX subject_word_of_tenant ON subject_word (tenant, word, snap_id);

GRANT SELECT, INSERT, DELETE ON subject_word TO snapapp_tenant;
ALTER TABLE subject_word ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON subject_word USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE subject_word IS 'The words of every subject, in lower case without accents, for the free text search.';
COMMENT ON COLUMN subject_word.snap_id IS 'The snap (snap.id).';
COMMENT ON COLUMN subject_word.word IS 'A word of the subject''s id or attributes.';
COMMENT ON COLUMN subject_word.tenant IS 'The tenant that the row belongs to.';
