-- When a sealing key was removed. Its check value stays, so that no other key gets its id, and no node seals with it again. A node
-- of before leaves the column alone.
ALTER TABLE secret_checks ADD COLUMN retired_at BIGINT;

-- Which sealing keys each running node has: no key seals before all of them can open what it has sealed.
CREATE TABLE keyring_nodes (
    node TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- How people know the node.
    host TEXT COLLATE "C" NOT NULL,
    -- The ids, a JSON list.
    key_ids TEXT COLLATE "C" NOT NULL,
    -- The key that the node seals with, and since when.
    primary_id BIGINT NOT NULL,
    primary_since BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
