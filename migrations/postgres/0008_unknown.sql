-- Unknown messages are found by their reference and by when they were claimed.
CREATE INDEX sms_unknown_reference ON sms (reference) WHERE state = 2;
CREATE INDEX sms_unknown_claimed ON sms (claimed_at) WHERE state = 2;

-- Whether the message with the key was sent after it had been cancelled: another one with it cannot free the key.
ALTER TABLE sms_key ADD COLUMN is_sent BOOLEAN NOT NULL DEFAULT FALSE;
