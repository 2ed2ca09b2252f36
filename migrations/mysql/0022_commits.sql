-- `token`: a random text of the registration, because another row may have had the same id before the database was
-- restored. `commits`: how many group commits of the worker are stored; the worker counts them, too, and so learns that
-- some were lost. `machine_id` identifies the machine; it is empty where that has no such text.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'worker' AND column_name = 'token') = 0,
    'ALTER TABLE worker
        ADD COLUMN token VARCHAR(64) NOT NULL DEFAULT '''',
        ADD COLUMN commits BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN machine_id VARCHAR(255) NOT NULL DEFAULT ''''',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Workers that were declared dead. A running worker whose row is gone and that is not here knows that the database lost
-- commits.
CREATE TABLE IF NOT EXISTS reclaimed_worker (
    token        VARCHAR(64) PRIMARY KEY,
    reclaimed_at BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
