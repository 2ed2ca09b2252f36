-- What a worker does now, as a JSON object that it writes every two seconds; NULL: nothing yet.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'worker' AND column_name = 'activity') = 0,
    'ALTER TABLE worker
        ADD COLUMN activity MEDIUMTEXT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- What happened to messages, in spans of ten seconds.
CREATE TABLE IF NOT EXISTS activity (
    at          BIGINT       NOT NULL,       -- when the span begins
    campaign_id BIGINT       NOT NULL,
    provider    VARCHAR(255) NOT NULL,
    sent        BIGINT       NOT NULL,
    failed      BIGINT       NOT NULL,
    unknown     BIGINT       NOT NULL,
    throttled   BIGINT       NOT NULL,       -- attempts that were too fast for the provider
    unavailable BIGINT       NOT NULL,       -- attempts that certainly did not reach it
    PRIMARY KEY (at, campaign_id, provider)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
