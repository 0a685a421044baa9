-- Whoever asks for installed software waits for what was noted before, and not for what is noted meanwhile.
ALTER TABLE device_software_changes ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
