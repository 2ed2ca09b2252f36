-- A receipt writes a new version of its message, and an entry for it into each index that has the message: those that
-- are not needed for it are gone, and the pages have room for new versions.
ALTER TABLE sms SET (fillfactor = 50);
ALTER TABLE sms_sent SET (fillfactor = 60);
DROP INDEX sms_sent_when;
CREATE INDEX sms_sent_when ON sms_sent (campaign_id, sent_at, delivery_state);
DROP INDEX sms_sent_delivery;
CREATE INDEX sms_sent_undelivered ON sms_sent (campaign_id, delivery_state, id)
    WHERE delivery_state IN ('undelivered', 'expired');
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
