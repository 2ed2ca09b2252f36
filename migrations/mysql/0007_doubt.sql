-- When the first attempt that may have been accepted was claimed; NULL also where that is not known.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'doubt_since') = 0,
    'ALTER TABLE sms ADD COLUMN doubt_since BIGINT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- An operator sends it again: no doubt from before prevents the next attempts, until one ends in doubt.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'resend_approved') = 0,
    'ALTER TABLE sms ADD COLUMN resend_approved BOOLEAN NOT NULL DEFAULT FALSE',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Of messages that an operator settled as failed.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms_failed' AND column_name = 'doubt_since') = 0,
    'ALTER TABLE sms_failed ADD COLUMN doubt_since BIGINT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- No attempt was earlier.
UPDATE sms SET doubt_since = created_at WHERE in_doubt;
UPDATE sms_failed SET doubt_since = created_at WHERE class = 'settled';
