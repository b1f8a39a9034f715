-- What a tenant may set for itself: how many days its history is kept, where that is less than the deployment keeps.
ALTER TABLE tenants ADD COLUMN retention_days integer CHECK (retention_days BETWEEN 1 AND 100000);
