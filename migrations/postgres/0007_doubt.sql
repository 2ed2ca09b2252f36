-- When the first attempt that may have been accepted was claimed; NULL also where that is not known.
ALTER TABLE sms ADD COLUMN doubt_since BIGINT;
-- An operator sends it again: no doubt from before prevents the next attempts, until one ends in doubt.
ALTER TABLE sms ADD COLUMN resend_approved BOOLEAN NOT NULL DEFAULT FALSE;
-- Of messages that an operator settled as failed.
ALTER TABLE sms_failed ADD COLUMN doubt_since BIGINT;
-- No attempt was earlier.
UPDATE sms SET doubt_since = created_at WHERE in_doubt;
UPDATE sms_failed SET doubt_since = created_at WHERE class = 'settled';
