-- What a server tells the commands that work beside it on the same store: under which URL it is reached.
CREATE TABLE service_notes (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    noted_at INTEGER NOT NULL
) STRICT;
