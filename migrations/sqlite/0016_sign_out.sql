-- Whether whoever signs out here is led on to the provider, to sign out there too.
ALTER TABLE sso_providers ADD COLUMN sign_out_at_provider INTEGER NOT NULL DEFAULT 0;

-- Who this service was at the provider when a sign-on began; none if a node of before has begun it.
ALTER TABLE sso_flows ADD COLUMN client_id TEXT;
