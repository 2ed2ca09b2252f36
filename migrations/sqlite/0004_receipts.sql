-- What became of a sent message. `delivery_state` is NULL where no receipt is fetched, else 'awaiting', 'delivered',
-- 'undelivered', 'expired' or 'no_report'.
ALTER TABLE sms_sent ADD COLUMN delivery_class TEXT;    -- why it was not delivered
ALTER TABLE sms_sent ADD COLUMN delivery_code TEXT;
ALTER TABLE sms_sent ADD COLUMN delivery_reason TEXT;
ALTER TABLE sms_sent ADD COLUMN delivery_at BIGINT;
ALTER TABLE sms_sent ADD COLUMN delivery_note TEXT;     -- a later receipt that contradicts the state
ALTER TABLE sms_sent ADD COLUMN content TEXT;           -- of a message that is not delivered, as the next column
ALTER TABLE sms_sent ADD COLUMN params TEXT;
ALTER TABLE sms_sent ADD COLUMN resent_at BIGINT;       -- when an import queued a fixed message for it
CREATE INDEX sms_sent_delivery ON sms_sent (campaign_id, delivery_state) WHERE delivery_state IS NOT NULL;
CREATE INDEX sms_sent_awaiting ON sms_sent (provider, sent_at) WHERE delivery_state = 'awaiting';
CREATE INDEX sms_sent_reference ON sms_sent (reference) WHERE delivery_state IS NOT NULL;
CREATE INDEX sms_failed_reference ON sms_failed (reference);

-- Of the purged sent messages.
ALTER TABLE purged ADD COLUMN delivered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE purged ADD COLUMN undelivered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE purged ADD COLUMN expired BIGINT NOT NULL DEFAULT 0;
ALTER TABLE purged ADD COLUMN no_report BIGINT NOT NULL DEFAULT 0;

-- Delivery receipts as they came.
CREATE TABLE receipt (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    provider    TEXT    NOT NULL,
    message_key TEXT    NOT NULL,            -- the provider's id or our reference, and the phone
    state       TEXT    NOT NULL,
    part        INTEGER NOT NULL,            -- the number of the segment; 0: the whole message
    parts       INTEGER NOT NULL,            -- how many segments there are; 0: not known
    reference   TEXT,
    message_id  TEXT,
    phone       TEXT,
    class       TEXT,
    code        TEXT,
    reason      TEXT,
    at          BIGINT,                      -- by the provider's clock
    raw         TEXT    NOT NULL,
    received_at BIGINT  NOT NULL,
    due_at      BIGINT,                      -- when it is applied; NULL: it was
    sms_id      BIGINT                       -- its message, once it is applied
);
CREATE UNIQUE INDEX receipt_key ON receipt (provider, message_key, state, part);
CREATE INDEX receipt_due ON receipt (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX receipt_message ON receipt (sms_id);

-- Which process fetches the receipts of a provider.
CREATE TABLE receipt_pull (
    provider     TEXT   PRIMARY KEY NOT NULL,
    holder       BIGINT NOT NULL,            -- a random number of the process
    leased_until BIGINT NOT NULL,            -- another process may take over then
    pulled_at    BIGINT                      -- when the last complete pass began
) WITHOUT ROWID;
