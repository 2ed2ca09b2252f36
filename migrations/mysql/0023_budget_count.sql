-- Of a counter of a budget: from when on it has every message, 0 from the first one of its campaign; NULL: that is not
-- known. While a campaign's messages are counted: a number of this count, and the workers that know of the budget.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'rate_limit' AND column_name = 'counted_from') = 0,
    'ALTER TABLE rate_limit
        ADD COLUMN counted_from BIGINT,
        ADD COLUMN counting TEXT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
