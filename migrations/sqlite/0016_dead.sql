-- Phones whose number does not exist, as a provider said.
CREATE TABLE dead (
    phone    TEXT PRIMARY KEY NOT NULL,  -- E.164 with `+`
    code     TEXT,
    provider TEXT   NOT NULL,
    at       BIGINT NOT NULL
) WITHOUT ROWID;

-- The receipt says that the number does not exist.
ALTER TABLE receipt ADD COLUMN is_dead_number BOOLEAN NOT NULL DEFAULT 0;
