-- Unknown messages are found by their reference and by when they were claimed. An index of all messages would be
-- written by each claim; these columns are NULL until a message is unknown.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'unknown_reference') = 0,
    'ALTER TABLE sms
        ADD COLUMN unknown_reference VARCHAR(255) AS (CASE WHEN state = 2 THEN reference END) STORED,
        ADD COLUMN unknown_claimed_at BIGINT AS (CASE WHEN state = 2 THEN claimed_at END) STORED,
        ADD KEY sms_unknown_reference (unknown_reference),
        ADD KEY sms_unknown_claimed (unknown_claimed_at)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Whether the message with the key was sent after it had been cancelled: another one with it cannot free the key.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms_key' AND column_name = 'is_sent') = 0,
    'ALTER TABLE sms_key ADD COLUMN is_sent BOOLEAN NOT NULL DEFAULT FALSE',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
