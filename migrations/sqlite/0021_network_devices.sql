-- What scans tell of switches, printers and the like. A node of before leaves it alone: it makes devices without it, and changes
-- only the columns that it knows.
ALTER TABLE devices ADD COLUMN firmware TEXT;
ALTER TABLE devices ADD COLUMN page_count INTEGER;
ALTER TABLE device_parts ADD COLUMN ports TEXT NOT NULL DEFAULT '[]';
ALTER TABLE device_parts ADD COLUMN supplies TEXT NOT NULL DEFAULT '[]';
