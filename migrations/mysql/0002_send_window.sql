-- '09:00-20:00 mon-fri Asia/Shanghai', or '' for any time. MySQL has no ADD COLUMN IF NOT EXISTS, and a
-- migration may be interrupted.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'campaign' AND column_name = 'send_window') = 0,
    'ALTER TABLE campaign ADD COLUMN send_window VARCHAR(255) NOT NULL DEFAULT ''''',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Requests that may have reached a phone, for caps per recipient.
CREATE TABLE IF NOT EXISTS recipient_start (
    sms_id   BIGINT       NOT NULL,
    claim    BIGINT       NOT NULL,
    phone    VARCHAR(255) NOT NULL,
    ended_at BIGINT,           -- the request started before this; NULL: it may still start
    PRIMARY KEY (sms_id, claim),
    INDEX recipient_start_phone (phone),
    INDEX recipient_start_ended (ended_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
