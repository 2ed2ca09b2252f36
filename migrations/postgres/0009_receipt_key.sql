-- Receipts with one id of the provider and different references are of different messages: some providers use their ids
-- again. Longer keys than the column takes stay as they are.
UPDATE receipt
SET message_key = concat(coalesce(reference, ''), ' ', coalesce(message_id, ''), ' ', coalesce(phone, ''))
WHERE char_length(concat(coalesce(reference, ''), ' ', coalesce(message_id, ''), ' ', coalesce(phone, ''))) <= 320;

-- Where the last pass over a list of receipts stopped, as JSON; NULL: it was complete.
ALTER TABLE receipt_pull ADD COLUMN position TEXT;
