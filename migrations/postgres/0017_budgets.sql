-- The most that the messages of a campaign may cost, such as '500.00 EUR'; empty: any amount.
ALTER TABLE campaign ADD COLUMN budget TEXT NOT NULL DEFAULT '';

-- What a message has taken from budgets, in millionths of the currency: for its current claim while it is sending, and
-- for earlier attempts that may have been accepted; and the month and currency of both, such as '2026-11/EUR'.
ALTER TABLE sms ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sms ADD COLUMN reserved_earlier BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sms ADD COLUMN reserved_month TEXT;

-- What the messages of a budget have cost, in millionths of its currency: the scopes are 'budget/campaign/ID/CURRENCY'
-- and 'budget/month/MONTH/CURRENCY'.
ALTER TABLE rate_limit ADD COLUMN spent BIGINT NOT NULL DEFAULT 0;
