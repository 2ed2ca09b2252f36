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
