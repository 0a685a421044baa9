-- What a server tells the commands that work beside it on the same store: under which URL it is reached.
CREATE TABLE service_notes (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL,
    noted_at BIGINT NOT NULL
);
