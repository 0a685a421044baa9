-- What scans tell of switches, printers and the like. A node of before leaves it alone: it makes devices without it, and changes
-- only the columns that it knows.
ALTER TABLE devices ADD COLUMN firmware TEXT COLLATE "C";
ALTER TABLE devices ADD COLUMN page_count BIGINT;
ALTER TABLE device_parts ADD COLUMN ports TEXT COLLATE "C" NOT NULL DEFAULT '[]';
ALTER TABLE device_parts ADD COLUMN supplies TEXT COLLATE "C" NOT NULL DEFAULT '[]';
