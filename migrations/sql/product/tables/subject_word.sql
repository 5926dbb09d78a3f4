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

COMMENT ON TABLE subject_word IS 'Every word said of a subject, in lower case without accents: what free text search looks in.';
COMMENT ON COLUMN subject_word.snap_id IS 'Of which snap.';
COMMENT ON COLUMN subject_word.word IS 'A word of its id or attributes.';
COMMENT ON COLUMN subject_word.tenant IS 'Whose.';
