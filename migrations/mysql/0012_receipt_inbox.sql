-- A receipt of a sent message is in the row of the message. Table `receipt` keeps those without a message, and all of a
-- message that has receipts of its parts. `due_at` says when a receipt without a message is tried again.
SET @smsq_change = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'receipt' AND column_name = 'raw') = 1,
    'ALTER TABLE receipt
        DROP COLUMN raw,
        ADD KEY receipt_due_reference (reference),
        ADD KEY receipt_due_message_id (message_id)',
    'DO 0');
PREPARE smsq_change FROM @smsq_change;
EXECUTE smsq_change;
DEALLOCATE PREPARE smsq_change;
