-- A random text of the registration: another row may have had the same id before the database was restored.
ALTER TABLE worker ADD COLUMN token TEXT NOT NULL DEFAULT '';
-- How many group commits of the worker are stored. The worker counts them, too, and so learns that some were lost.
ALTER TABLE worker ADD COLUMN commits BIGINT NOT NULL DEFAULT 0;
-- Identifies the machine; empty where it has no such text.
ALTER TABLE worker ADD COLUMN machine_id TEXT NOT NULL DEFAULT '';

-- Workers that were declared dead. A running worker whose row is gone and that is not here knows that the database lost
-- commits.
CREATE TABLE reclaimed_worker (
    token        TEXT   PRIMARY KEY NOT NULL,
    reclaimed_at BIGINT NOT NULL
) WITHOUT ROWID;
