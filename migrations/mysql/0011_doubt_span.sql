-- The claim of the only attempt that may have been accepted, if no attempt was made after it.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'doubt_claim') = 0,
    'ALTER TABLE sms ADD COLUMN doubt_claim BIGINT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- The provider that it was last sent through; of a message in doubt the provider of all its attempts, or an empty text
-- if they went through several.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'claimed_provider') = 0,
    'ALTER TABLE sms ADD COLUMN claimed_provider TEXT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
-- Of messages that an operator settled as failed.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms_failed' AND column_name = 'claimed_provider') = 0,
    'ALTER TABLE sms_failed ADD COLUMN claimed_provider TEXT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Until now `unknown_at` was set for such messages only.
UPDATE sms SET doubt_claim = claim, doubt_since = claimed_at WHERE state = 2 AND unknown_at IS NOT NULL;
UPDATE sms SET unknown_at = NULL WHERE state <> 2;
