-- References of smsq end with the id of their message.
DROP INDEX sms_sent_reference;
CREATE INDEX sms_sent_other_reference ON sms_sent (reference)
    WHERE delivery_state IS NOT NULL AND substr(reference, 17) <> CAST(id AS TEXT);
-- Receipts without a message need no entry.
DROP INDEX receipt_message;
CREATE INDEX receipt_message ON receipt (sms_id) WHERE sms_id IS NOT NULL;

-- The provider that accepted `late_message_id`, and whether its receipts are awaited.
ALTER TABLE sms ADD COLUMN late_provider TEXT;
ALTER TABLE sms ADD COLUMN late_awaits_receipt BOOLEAN;
