-- Whether a second person has to approve the messages of a campaign before they are sent: 0 no, 1 they wait for it,
-- 2 they are approved, 3 approved and begun.
ALTER TABLE campaign ADD COLUMN approval INTEGER NOT NULL DEFAULT 0;
-- The last message (`sms.id`) that was approved, and when.
ALTER TABLE campaign ADD COLUMN approved_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE campaign ADD COLUMN approved_at BIGINT NOT NULL DEFAULT 0;
-- Who added messages or changed settings since the last approval, one name in a line. They cannot approve them.
ALTER TABLE campaign ADD COLUMN wanted_by TEXT NOT NULL DEFAULT '';
