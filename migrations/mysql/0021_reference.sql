-- The reference of the attempt. Once an attempt is answered as not accepted, the message gets another one; if an
-- earlier one may have been accepted, it keeps its reference, and `sms.doubt_claim` is -1.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'attempt' AND column_name = 'reference') = 0,
    'ALTER TABLE attempt ADD COLUMN reference VARCHAR(255)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
