-- The most that the messages of a campaign may cost, such as '500.00 EUR'; empty: any amount.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'campaign' AND column_name = 'budget') = 0,
    'ALTER TABLE campaign ADD COLUMN budget VARCHAR(255) NOT NULL DEFAULT ''''',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- What a message has taken from budgets, in millionths of the currency: for its current claim while it is sending, and
-- for earlier attempts that may have been accepted; and the month and currency of both, such as '2026-11/EUR'.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms' AND column_name = 'reserved') = 0,
    'ALTER TABLE sms
        ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN reserved_earlier BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN reserved_month VARCHAR(255)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- What the messages of a budget have cost, in millionths of its currency: the scopes are 'budget/campaign/ID/CURRENCY'
-- and 'budget/month/MONTH/CURRENCY'.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'rate_limit' AND column_name = 'spent') = 0,
    'ALTER TABLE rate_limit ADD COLUMN spent BIGINT NOT NULL DEFAULT 0',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
