CREATE TABLE subject_attribute (
    snap_id      uuid NOT NULL,
    position     integer NOT NULL,
    tenant       text NOT NULL COLLATE "C",
    key          text NOT NULL,
    key_lower    text NOT NULL GENERATED ALWAYS AS (lower(key)) STORED,
    type         text NOT NULL,
    text_value   text,
    text_head    text COLLATE "C" GENERATED ALWAYS AS (left(text_value, 200)) STORED,
    number_value double precision,

    PRIMARY KEY (snap_id, position),
    FOREIGN KEY (tenant, snap_id) REFERENCES snap (tenant, id) ON DELETE CASCADE,
    CONSTRAINT key_is_short CHECK (length(key) BETWEEN 1 AND 120 AND position BETWEEN 0 AND 999),
    CONSTRAINT value_is_of_its_type CHECK (
        num_nonnulls(text_value, number_value) = 1
        AND type = CASE WHEN number_value IS NULL THEN 'string' ELSE 'number' END),
    CONSTRAINT value_is_sane CHECK (length(text_value) <= 1000 AND number_value BETWEEN -1e15 AND 1e15)
);

-- An entry of an index may have 2,700 bytes, and a value 4,000: so the index holds only the beginning of a value.
CREATE INDEX subject_attribute_text ON subject_attribute (tenant, key_lower, text_head, snap_id)
    WHERE text_value IS NOT NULL;
CREATE INDEX subject_attribute_number ON subject_attribute (tenant, key_lower, number_value, snap_id)
    WHERE number_value IS NOT NULL;

GRANT SELECT, INSERT, DELETE ON subject_attribute TO snapapp_tenant;
ALTER TABLE subject_attribute ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON subject_attribute USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE subject_attribute IS 'The attributes of snaps, one a row, for searching. snap.subject has them as they were sent.';
COMMENT ON COLUMN subject_attribute.snap_id IS 'The snap (snap.id).';
COMMENT ON COLUMN subject_attribute.position IS 'The position of the attribute in its snap, from 0.';
COMMENT ON COLUMN subject_attribute.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN subject_attribute.key IS 'The key as the client sent it.';
COMMENT ON COLUMN subject_attribute.key_lower IS 'key in lower case.';
COMMENT ON COLUMN subject_attribute.type IS 'string or number.';
COMMENT ON COLUMN subject_attribute.text_value IS 'The value of a string.';
COMMENT ON COLUMN subject_attribute.text_head IS 'The first 200 characters of text_value, which an index can hold.';
COMMENT ON COLUMN subject_attribute.number_value IS 'The value of a number, to 15 digits.';
