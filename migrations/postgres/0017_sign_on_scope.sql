-- The version of the provider that a sign-on was begun with, which takes the place of the client id; none if a node of before has
-- begun it.
ALTER TABLE sso_flows ADD COLUMN provider_version BIGINT;

-- What a provider is asked for, where the operator says it; otherwise what the rules need.
ALTER TABLE sso_providers ADD COLUMN scope TEXT COLLATE "C";
