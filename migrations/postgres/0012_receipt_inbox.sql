-- A receipt of a sent message is in the row of the message. Table `receipt` keeps those without a message, and all of a
-- message that has receipts of its parts. `due_at` says when a receipt without a message is tried again.
ALTER TABLE receipt DROP COLUMN raw;
CREATE INDEX receipt_due_reference ON receipt (reference) WHERE due_at IS NOT NULL;
CREATE INDEX receipt_due_message_id ON receipt (message_id) WHERE due_at IS NOT NULL;
