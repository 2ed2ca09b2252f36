-- Receipts with one id of the provider and different references are of different messages: some providers use their ids
-- again. Longer keys than the column takes stay as they are.
UPDATE IGNORE receipt
SET message_key = concat(coalesce(reference, ''), ' ', coalesce(message_id, ''), ' ', coalesce(phone, ''))
WHERE char_length(concat(coalesce(reference, ''), ' ', coalesce(message_id, ''), ' ', coalesce(phone, ''))) <= 320;

-- Where the last pass over a list of receipts stopped, as JSON; NULL: it was complete.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'receipt_pull' AND column_name = 'position') = 0,
    'ALTER TABLE receipt_pull ADD COLUMN position MEDIUMTEXT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
