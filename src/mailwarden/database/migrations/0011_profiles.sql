-- A third profile: `monitor` holds back nothing but malware, and tells what would have happened.
ALTER TABLE tenants
    DROP CONSTRAINT tenants_profile_check,
    ADD CONSTRAINT tenants_profile_check CHECK (profile IN ('balanced', 'strict', 'monitor'));
