-- The claim of the only attempt that may have been accepted, if no attempt was made after it.
ALTER TABLE sms ADD COLUMN doubt_claim BIGINT;
-- The provider that it was last sent through; of a message in doubt the provider of all its attempts, or an empty text
-- if they went through several.
ALTER TABLE sms ADD COLUMN claimed_provider TEXT;
-- Of messages that an operator settled as failed.
ALTER TABLE sms_failed ADD COLUMN claimed_provider TEXT;
-- Until now `unknown_at` was set for such messages only.
UPDATE sms SET doubt_claim = claim, doubt_since = claimed_at WHERE state = 2 AND unknown_at IS NOT NULL;
UPDATE sms SET unknown_at = NULL WHERE state <> 2;
