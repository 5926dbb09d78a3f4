-- The role in which a tenant's rows are read and written: it owns nothing, so row level security holds for it. Roles
-- belong to the whole cluster: another database may have made it, or be making it now.

-- The first protection is the condition on tenant in every statement; this role is the second. database.scope() acts as
-- snapapp_tenant and sets the tenant; without a tenant no row is visible. FORCE applies the policies to the owner too,
-- except on the two tables that say who somebody is: a tenant by its token (tenant), a receiver by a link's (share).

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
    -- The role is tried out, because what membership allows differs between the versions 14 to 18 of PostgreSQL.
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
