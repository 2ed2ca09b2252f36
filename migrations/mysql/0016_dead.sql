-- Phones whose number does not exist, as a provider said.
CREATE TABLE IF NOT EXISTS dead (
    phone    VARCHAR(255) PRIMARY KEY, -- E.164 with `+`
    code     TEXT,
    provider VARCHAR(255) NOT NULL,
    at       BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The receipt says that the number does not exist.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'receipt' AND column_name = 'is_dead_number') = 0,
    'ALTER TABLE receipt ADD COLUMN is_dead_number BOOLEAN NOT NULL DEFAULT FALSE',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
