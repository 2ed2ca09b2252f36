-- What became of a sent message. `delivery_state` is NULL where no receipt is fetched, else 'awaiting', 'delivered',
-- 'undelivered', 'expired' or 'no_report'. `delivery_class`, `delivery_code` and `delivery_reason` say why it was not
-- delivered, `delivery_note` has a later receipt that contradicts the state, `resent_at` when an import queued a fixed
-- message for it. `content` and `params` are kept while it is not delivered.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'sms_sent' AND column_name = 'delivery_at') = 0,
    'ALTER TABLE sms_sent
        MODIFY COLUMN delivery_state VARCHAR(16),
        ADD COLUMN delivery_class  VARCHAR(255),
        ADD COLUMN delivery_code   TEXT,
        ADD COLUMN delivery_reason TEXT,
        ADD COLUMN delivery_at     BIGINT,
        ADD COLUMN delivery_note   TEXT,
        ADD COLUMN content         MEDIUMTEXT,
        ADD COLUMN params          MEDIUMTEXT,
        ADD COLUMN resent_at       BIGINT,
        ADD KEY sms_sent_delivery (campaign_id, delivery_state),
        ADD KEY sms_sent_awaiting (delivery_state, provider, sent_at),
        ADD KEY sms_sent_reference (reference)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.statistics
     WHERE table_schema = database() AND table_name = 'sms_failed' AND index_name = 'sms_failed_reference') = 0,
    'ALTER TABLE sms_failed ADD KEY sms_failed_reference (reference)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Of the purged sent messages.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'purged' AND column_name = 'delivered') = 0,
    'ALTER TABLE purged
        ADD COLUMN delivered   BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN undelivered BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN expired     BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN no_report   BIGINT NOT NULL DEFAULT 0',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;

-- Delivery receipts as they came.
CREATE TABLE IF NOT EXISTS receipt (
    id          BIGINT       AUTO_INCREMENT PRIMARY KEY,
    provider    VARCHAR(255) NOT NULL,
    message_key VARCHAR(320) NOT NULL,       -- the provider's id or our reference, and the phone
    state       VARCHAR(16)  NOT NULL,
    part        INT          NOT NULL,       -- the number of the segment; 0: the whole message
    parts       INT          NOT NULL,       -- how many segments there are; 0: not known
    reference   VARCHAR(255),
    message_id  VARCHAR(255),
    phone       VARCHAR(255),
    class       VARCHAR(255),
    code        TEXT,
    reason      TEXT,
    at          BIGINT,                      -- by the provider's clock
    raw         MEDIUMTEXT   NOT NULL,
    received_at BIGINT       NOT NULL,
    due_at      BIGINT,                      -- when it is applied; NULL: it was
    sms_id      BIGINT,                      -- its message, once it is applied
    UNIQUE KEY receipt_key (provider, message_key, state, part),
    KEY receipt_due (due_at),
    KEY receipt_message (sms_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which process fetches the receipts of a provider.
CREATE TABLE IF NOT EXISTS receipt_pull (
    provider     VARCHAR(255) PRIMARY KEY,
    holder       BIGINT       NOT NULL,      -- a random number of the process
    leased_until BIGINT       NOT NULL,      -- another process may take over then
    pulled_at    BIGINT                      -- when the last complete pass began
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
