-- The reference of the attempt. Once an attempt is answered as not accepted, the message gets another one; if an
-- earlier one may have been accepted, it keeps its reference, and `sms.doubt_claim` is -1.
ALTER TABLE attempt ADD COLUMN reference TEXT;
