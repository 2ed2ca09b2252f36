-- Of a counter of a budget: from when on it has every message, 0 from the first one of its campaign; NULL: that is not
-- known. While a campaign's messages are counted: a number of this count, and the workers that know of the budget.
ALTER TABLE rate_limit ADD COLUMN counted_from BIGINT;
ALTER TABLE rate_limit ADD COLUMN counting TEXT;
