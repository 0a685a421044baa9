-- Installed software comes into its index after the device that has it, and the summary reads few more counters than it shows.

-- What has changed of a device's software and is not in device_software and device_counts yet, under the version that it made.
CREATE TABLE device_software_changes (
    tenant_id TEXT NOT NULL,
    -- Names lie in few buckets, so that notes of several devices which name the same lie side by side.
    bucket INTEGER NOT NULL,
    number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    -- A change of many names is noted in several pieces.
    part INTEGER NOT NULL,
    changes TEXT NOT NULL,
    PRIMARY KEY (tenant_id, bucket, number, version, part)
) STRICT;

-- One, two and three devices are sizes of their own, and within a size counters lie in the order in which they are shown.
UPDATE device_counts SET size = CASE WHEN devices >= 4 THEN size + 2 ELSE devices - 1 END;
DROP INDEX device_counts_by_size;
CREATE INDEX device_counts_by_size ON device_counts (tenant_id, organization_id, dimension, size DESC, value);
