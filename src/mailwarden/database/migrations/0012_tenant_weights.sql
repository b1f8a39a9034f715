-- Rules that weigh otherwise for a tenant: an object of rule and weight. Their bounds are the policy's to know.
ALTER TABLE tenants ADD COLUMN weights jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(weights) = 'object');
