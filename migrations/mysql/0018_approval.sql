-- Whether a second person has to approve the messages of a campaign before they are sent: 0 no, 1 they wait for it,
-- 2 they are approved, 3 approved and begun; the last message (`sms.id`) that was approved, and when; and who added
-- messages or changed settings since the last approval, one name in a line. They cannot approve them.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'campaign' AND column_name = 'approval') = 0,
    'ALTER TABLE campaign
        ADD COLUMN approval INT NOT NULL DEFAULT 0,
        ADD COLUMN approved_id BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN approved_at BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN wanted_by VARCHAR(1024) NOT NULL DEFAULT ''''',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
