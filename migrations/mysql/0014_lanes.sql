-- The part of the campaign's queue that a message waits in, see table `lane`; 0: it is not divided.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'lane') = 0,
    'ALTER TABLE sms
        ADD COLUMN lane INT NOT NULL DEFAULT 0,
        DROP KEY sms_due,
        ADD KEY sms_due (campaign_id, state, lane, due_at, id, import_id)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Also its limits of thousands of senders.
ALTER TABLE worker MODIFY limits MEDIUMTEXT NOT NULL DEFAULT ('{}');

-- The parts of the queues of campaigns: who sends their messages.
CREATE TABLE IF NOT EXISTS lane (
    campaign_id BIGINT       NOT NULL,
    lane        INT          NOT NULL, -- from 1
    provider    VARCHAR(255) NOT NULL,
    sender      VARCHAR(255) NOT NULL,
    PRIMARY KEY (campaign_id, lane),
    UNIQUE KEY lane_sender (campaign_id, provider, sender)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The senders of providers that an operator switched off.
CREATE TABLE IF NOT EXISTS sender_off (
    provider    VARCHAR(255) NOT NULL,
    sender      VARCHAR(255) NOT NULL,
    since       BIGINT       NOT NULL,
    PRIMARY KEY (provider, sender)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
