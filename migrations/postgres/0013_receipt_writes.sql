-- A receipt writes a new version of its message, and an entry for it into each index that has the message: those that
-- are not needed for it are gone, and the pages have room for new versions.
ALTER TABLE sms SET (fillfactor = 45);
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

-- The dedupe key of a message, unless it is the phone.
ALTER TABLE sms_sent ADD COLUMN dedupe_key TEXT;

-- A message in any table. `at` is when it was sent, failed, or is due.
CREATE VIEW sms_message AS
SELECT id, campaign_id, import_id, phone, content, coalesce(dedupe_key, phone) AS dedupe_key, 'sent' AS state, segments, attempts,
    reference, provider, message_id,
    coalesce(accepted_claims, CASE WHEN accepted > 0 THEN CAST(claim AS TEXT) END) AS accepted_claims,
    delivery_class AS class, delivery_code AS code, delivery_reason AS reason, delivery_state AS delivery, resent_at,
    created_at, sent_at AS at
FROM sms_sent
UNION ALL
SELECT id, campaign_id, import_id, phone, content, dedupe_key,
    CASE WHEN class = 'cancelled' THEN 'cancelled' ELSE 'failed' END, segments, attempts, reference, NULL, NULL, NULL,
    class, code, reason, NULL, NULL, created_at, failed_at
FROM sms_failed
UNION ALL
SELECT id, campaign_id, import_id, phone, content, dedupe_key,
    CASE state WHEN 1 THEN 'sending' WHEN 2 THEN 'unknown' ELSE 'queued' END, segments, attempts, reference, NULL, NULL,
    NULL, last_class, last_code, last_reason, NULL, NULL, created_at, due_at
FROM sms;
