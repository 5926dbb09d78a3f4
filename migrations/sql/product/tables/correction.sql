CREATE TABLE correction (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text NOT NULL COLLATE "C",
    snap_id     uuid NOT NULL,
    by          text NOT NULL,
    operator_id bigint,
    at          timestamptz NOT NULL DEFAULT now(),
    before      jsonb NOT NULL,
    after       jsonb NOT NULL,

    FOREIGN KEY (tenant, snap_id) REFERENCES snap (tenant, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant, operator_id) REFERENCES operator (tenant, id),
    CONSTRAINT by_is_short CHECK (length(by) BETWEEN 1 AND 320)
);

CREATE INDEX correction_of_snap ON correction (tenant, snap_id, id);

GRANT SELECT, INSERT ON correction TO snapapp_tenant;
ALTER TABLE correction ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON correction USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE correction IS 'Corrections of snaps before they were shared. Rows are never changed.';
COMMENT ON COLUMN correction.id IS 'The id of the row.';
COMMENT ON COLUMN correction.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN correction.snap_id IS 'The snap (snap.id).';
COMMENT ON COLUMN correction.by IS 'Who corrected it.';
COMMENT ON COLUMN correction.operator_id IS 'The operator who was signed in; null: it came with the token of the tenant, and by is what its sender said.';
COMMENT ON COLUMN correction.at IS 'When it was corrected.';
COMMENT ON COLUMN correction.before IS 'The subject before the correction, and the filming date (dataFilmagem) if that was corrected.';
COMMENT ON COLUMN correction.after IS 'The same values after the correction.';
