-- The role in which a tenant's rows are read and written: it owns nothing, so row level security holds for it. Roles
-- belong to the whole cluster: another database may have made it, or be making it now.

-- It is the second wall; the first is the condition on tenant in every statement. db.scope() acts as snapapp_tenant and
-- says for whom. Nothing said: nothing seen. FORCE holds the owner to it as well, except at the two doors where it is
-- found out who somebody is: a tenant by its token (tenant), a receiver by the token of a link (share).

DO $$
DECLARE
    way_out CONSTANT text := format('CREATE ROLE snapapp_tenant NOLOGIN; GRANT snapapp_tenant TO %I', current_user);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'snapapp_tenant') THEN
        BEGIN
            CREATE ROLE snapapp_tenant NOLOGIN;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'the role snapapp_tenant is missing and % may not make it: have an administrator type: %',
                    current_user, way_out USING ERRCODE = '42501';
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'snapapp_tenant' AND (rolsuper OR rolbypassrls)) THEN
        RAISE EXCEPTION 'the role snapapp_tenant is above row level security: type: '
            'ALTER ROLE snapapp_tenant NOSUPERUSER NOBYPASSRLS' USING ERRCODE = '42501';
    END IF;
    -- Tried out, because what membership allows is another question in each PostgreSQL from 14 to 18.
    BEGIN
        SET LOCAL ROLE snapapp_tenant;
        RESET ROLE;
    EXCEPTION WHEN insufficient_privilege THEN
        BEGIN
            GRANT snapapp_tenant TO CURRENT_USER;
        EXCEPTION
            WHEN unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION '% may not act as snapapp_tenant: have an administrator type: GRANT snapapp_tenant TO %',
                    current_user, quote_ident(current_user) USING ERRCODE = '42501';
        END;
    END;
    IF NOT has_schema_privilege('snapapp_tenant', current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO snapapp_tenant', current_schema());
    END IF;
END $$;
