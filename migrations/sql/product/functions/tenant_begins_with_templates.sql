-- A trigger, so that every new tenant gets its templates, whoever adds it.
CREATE FUNCTION tenant_begins_with_templates() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.code, true);
    INSERT INTO template (tenant, slug, name, is_default, fields) VALUES
        (NEW.code, 'default', 'Default', true, '[
            {"key": "id", "type": "string", "required": false, "order": 1},
            {"key": "observacoes", "type": "string", "required": false, "order": 2}]'),
        (NEW.code, 'gado', 'Gado', false, '[
            {"key": "brinco", "type": "string", "required": true, "order": 1},
            {"key": "raca", "type": "string", "required": false, "order": 2},
            {"key": "sexo", "type": "string", "required": false, "order": 3},
            {"key": "peso_referencia", "type": "number", "required": false, "order": 4},
            {"key": "condicao_corporal", "type": "string", "required": false, "order": 5},
            {"key": "lote", "type": "string", "required": false, "order": 6},
            {"key": "pasto", "type": "string", "required": false, "order": 7},
            {"key": "observacoes", "type": "string", "required": false, "order": 8}]');
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;

COMMENT ON FUNCTION tenant_begins_with_templates IS 'Gives a new tenant the templates default and gado.';
