-- The provider that accepted `late_message_id`, and whether its receipts are awaited.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'late_provider') = 0,
    'ALTER TABLE sms
        ADD COLUMN late_provider TEXT,
        ADD COLUMN late_awaits_receipt BOOLEAN',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- The dedupe key of a message, unless it is the phone.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms_sent' AND column_name = 'dedupe_key') = 0,
    'ALTER TABLE sms_sent ADD COLUMN dedupe_key VARBINARY(1024)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- A message in any table. `at` is when it was sent, failed, or is due.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW sms_message AS
SELECT id, campaign_id, import_id, phone, content, coalesce(dedupe_key, phone) AS dedupe_key, 'sent' AS state, segments, attempts,
    reference, provider, message_id,
    coalesce(accepted_claims, CASE WHEN accepted > 0 THEN CAST(claim AS CHAR) END) AS accepted_claims,
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
