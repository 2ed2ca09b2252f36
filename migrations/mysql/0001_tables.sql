-- The tables of smsq. Each statement can be repeated, because MySQL commits it at once and a process may be killed in
-- the middle: keys are created with their tables. What only has to be equal is VARBINARY, because comparisons of text
-- ignore blanks at its end. An index of a part of a table, which other engines have, is one of the whole table, or of a
-- column that is NULL elsewhere.
--
-- In all of them columns `…_at`, `at` and `since` are instants in milliseconds since the Unix epoch by the database's
-- clock. A phone is E.164 with `+` unless another program has written it. A message keeps its id, from `sms` to
-- `sms_sent` or `sms_failed`. `provider` is the name of a section `[providers.NAME]`. What names a person is a token of
-- the server or the user of a command.

-- Campaigns and lists

-- Campaigns. Campaign 1, `default`, is that of messages which another program inserts without one.
CREATE TABLE IF NOT EXISTS campaign (
    id              BIGINT AUTO_INCREMENT PRIMARY KEY,
    name            VARBINARY(400) NOT NULL UNIQUE,
    provider        VARCHAR(255),                       -- NULL: the configuration's `default_provider`
    sender          TEXT,                               -- NULL: that of the provider
    rate            VARCHAR(1024)  NOT NULL DEFAULT '', -- '100/s,20000/day', or '' without a limit
    priority        INT            NOT NULL DEFAULT 0,  -- higher goes first
    send_window     VARCHAR(255)   NOT NULL DEFAULT '', -- '09:00-20:00 mon-fri Asia/Shanghai', or '' for any time
    -- The most that it may cost, such as '500.00 EUR'; '': any amount.
    budget          VARCHAR(255)   NOT NULL DEFAULT '',
    state           INT            NOT NULL DEFAULT 0,  -- 0 active, 1 paused, 2 stopped, 3 cancelled
    state_reason    TEXT,                               -- why it is paused or stopped
    -- Whether a second person has to approve: 0 nothing of it needed that yet, 1 some of its messages wait, 2 nothing
    -- waits, and new messages and settings need it, 3 as 0, while a list is added that may need it, 4 all its messages
    -- wait.
    approval        INT            NOT NULL DEFAULT 0,
    approval_reason TEXT,                               -- what its messages wait for
    unique_by       TEXT,                               -- the columns of its dedupe keys
    created_at      BIGINT         NOT NULL
                    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO campaign (id, name) VALUES (1, 'default');

-- Lists that were imported, posted or uploaded. The transaction that adds rows counts them.
CREATE TABLE IF NOT EXISTS import (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    campaign_id BIGINT      NOT NULL,
    file        TEXT        NOT NULL,           -- its name
    hash        VARCHAR(64) NOT NULL,           -- of its content: the same list continues after its last line
    last_line   BIGINT      NOT NULL DEFAULT 0, -- the last line that is stored
    row_count   BIGINT      NOT NULL DEFAULT 0, -- rows that were read; the next four columns say what became of them
    accepted    BIGINT      NOT NULL DEFAULT 0,
    duplicates  BIGINT      NOT NULL DEFAULT 0,
    suppressed  BIGINT      NOT NULL DEFAULT 0,
    rejected    BIGINT      NOT NULL DEFAULT 0,
    replaced    BIGINT      NOT NULL DEFAULT 0, -- accepted messages that failed and were replaced by a later import
    template    MEDIUMTEXT,                     -- the text of its messages, with placeholders
    sample      MEDIUMTEXT,                     -- without a template: the text of its first message
    gsm7        BIGINT      NOT NULL DEFAULT 0, -- accepted messages in this alphabet
    ucs2        BIGINT      NOT NULL DEFAULT 0,
    posted_by   VARCHAR(255),                   -- the token with which it was posted
    created_at  BIGINT      NOT NULL,
    finished_at BIGINT                          -- NULL: it is read, or was interrupted
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages

-- The queue: messages that are ready, being sent, or unknown. Another program may insert rows with `phone` and
-- `content` alone.
CREATE TABLE IF NOT EXISTS sms (
    id                  BIGINT AUTO_INCREMENT PRIMARY KEY,
    campaign_id         BIGINT       NOT NULL DEFAULT 1,
    import_id           BIGINT,                               -- NULL: inserted by another program
    phone               VARCHAR(255) NOT NULL,
    content             MEDIUMTEXT   NOT NULL,                -- the text
    params              MEDIUMTEXT   NOT NULL DEFAULT ('{}'), -- the columns of its row, a JSON object of strings
    segments            INT,                                  -- NULL until it is counted
    dedupe_key          VARBINARY(1024),                      -- its key in `sms_key`
    created_at          BIGINT       NOT NULL
                        DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    -- When it is sent: a worker claims the due messages of a lane. State: 0 ready, 1 sending, 2 unknown.
    state               INT          NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    -- 0: any sender; above 0: that of table `lane`; below 0: `approval.id`, negative.
    lane                INT          NOT NULL DEFAULT 0,
    -- Not sent before.
    due_at              BIGINT       NOT NULL
                        DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    -- Not sent after.
    expires_at          BIGINT,
    attempts            INT          NOT NULL DEFAULT 0,      -- attempts that have ended and count
    -- Its claim, which is stored before its request starts.
    worker_id           BIGINT,                               -- the worker that sends it
    -- The number of the last claim: a settlement names its claim.
    claim               BIGINT       NOT NULL DEFAULT 0,
    claimed_at          BIGINT,
    -- The provider that it was last sent through; of a message in doubt the provider of all its attempts, or '' if they
    -- went through several.
    claimed_provider    TEXT,
    -- Our id for the message at the provider: 16 random characters and `id`.
    reference           VARCHAR(255),
    refunded_claim      BIGINT,                               -- the claim whose attempt does not count
    -- Its doubt: whether an attempt may have been accepted.
    in_doubt            BOOLEAN      NOT NULL DEFAULT FALSE,
    -- When the first such attempt was claimed; NULL also where that is not known.
    doubt_since         BIGINT,
    -- The claim of the only such attempt, if no attempt was made after it; -1: an attempt with its reference was not
    -- accepted.
    doubt_claim         BIGINT,
    -- No attempt that may have been accepted started after this.
    unknown_at          BIGINT,
    -- An operator sends it again: no doubt from before prevents the next attempts, until one ends in doubt.
    resend_approved     BOOLEAN      NOT NULL DEFAULT FALSE,
    -- The last failure, for reports.
    last_class          VARCHAR(255),
    last_code           TEXT,
    last_reason         TEXT,
    -- Acceptances of older claims that came while this one was sending.
    late_accepted       INT          NOT NULL DEFAULT 0,      -- how many
    late_claims         TEXT,                                 -- the numbers of those claims, separated by commas
    -- The last of them, as the next two columns: the provider's id.
    late_message_id     TEXT,
    late_provider       TEXT,
    late_awaits_receipt BOOLEAN,                              -- whether its receipt is awaited
    -- What it has taken from budgets, in millionths of the currency.
    reserved            BIGINT       NOT NULL DEFAULT 0,      -- for its current claim while it is sending
    reserved_earlier    BIGINT       NOT NULL DEFAULT 0,      -- for earlier attempts that may have been accepted
    reserved_month      VARCHAR(255),                         -- the month and currency of both, such as '2026-11/EUR'
    -- Of unknown messages, for their indexes: an index of all messages would be written by each claim.
    unknown_reference   VARCHAR(255) AS (CASE WHEN state = 2 THEN reference END) STORED,
    unknown_claimed_at  BIGINT       AS (CASE WHEN state = 2 THEN claimed_at END) STORED,
    -- For claims: the due messages of a lane, in their order without sorting. It ends with the import, so that messages
    -- of other programs are counted with the index only.
    KEY sms_due (campaign_id, state, lane, due_at, id, import_id),
    -- For receipts and lookups of unknown messages, by their reference and in the order of their claims.
    KEY sms_unknown_reference (unknown_reference),
    KEY sms_unknown_claimed (unknown_claimed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Accepted messages, and what became of them.
CREATE TABLE IF NOT EXISTS sms_sent (
    id              BIGINT PRIMARY KEY,              -- as in `sms`, like the next four
    campaign_id     BIGINT       NOT NULL,
    import_id       BIGINT,
    phone           VARCHAR(255) NOT NULL,
    dedupe_key      VARBINARY(1024),                 -- unless it is the phone
    reference       VARCHAR(255),
    provider        VARCHAR(255) NOT NULL,
    message_id      TEXT,                            -- the provider's id
    segments        INT,
    price           TEXT,                            -- as the provider wrote it
    attempts        INT          NOT NULL,
    accepted        INT          NOT NULL DEFAULT 1, -- how often the provider accepted it
    accepted_claims TEXT,                            -- by which claims, separated by commas; NULL: by `claim`
    claim           BIGINT       NOT NULL,
    created_at      BIGINT       NOT NULL,
    sent_at         BIGINT       NOT NULL,           -- when it was accepted
    -- Its delivery, as receipts say. The state is NULL where no receipt is fetched, else 'awaiting', 'delivered',
    -- 'undelivered', 'expired' or 'no_report'.
    delivery_state  VARCHAR(16),
    delivery_class  VARCHAR(255),                    -- why it was not delivered, as the next two columns
    delivery_code   TEXT,
    delivery_reason TEXT,
    delivery_at     BIGINT,
    delivery_note   TEXT,                            -- a later receipt that contradicts the state
    -- Of a message that is not delivered, so that it can be fixed and sent again.
    content         MEDIUMTEXT,
    params          MEDIUMTEXT,
    resent_at       BIGINT,                          -- when an import queued a fixed message for it
    -- For reports of a campaign, in the order of time, and counts of the messages of other programs.
    KEY sms_sent_when (campaign_id, sent_at, import_id),
    -- For receipts: by the provider's id.
    KEY sms_sent_message (message_id(64)),
    -- For receipts: by a reference.
    KEY sms_sent_reference (reference),
    -- For lists and counts by state of delivery.
    KEY sms_sent_delivery (campaign_id, delivery_state),
    -- For receipts: the age of the messages whose receipt is awaited.
    KEY sms_sent_awaiting (delivery_state, provider, sent_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that failed, expired or were cancelled.
CREATE TABLE IF NOT EXISTS sms_failed (
    id               BIGINT PRIMARY KEY,    -- as in `sms`, like the columns up to `expires_at`
    campaign_id      BIGINT       NOT NULL,
    import_id        BIGINT,
    phone            VARCHAR(255) NOT NULL,
    content          MEDIUMTEXT   NOT NULL,
    params           MEDIUMTEXT   NOT NULL,
    segments         INT,
    expires_at       BIGINT,
    class            VARCHAR(255) NOT NULL, -- the kind of failure: recipient, content, expired, cancelled, …
    code             TEXT,                  -- the provider's code
    reason           TEXT         NOT NULL,
    attempts         INT          NOT NULL,
    claim            BIGINT       NOT NULL,
    reference        VARCHAR(255),
    dedupe_key       VARBINARY(1024),
    created_at       BIGINT       NOT NULL,
    failed_at        BIGINT       NOT NULL,
    doubt_since      BIGINT,                -- of a message that an operator settled as failed, as the next column
    claimed_provider TEXT,
    -- For reports and `smsq retry`. It ends with the import, to count the messages of other programs.
    KEY sms_failed_class (campaign_id, class, import_id),
    -- For receipts, which may show that the message was accepted.
    KEY sms_failed_reference (reference)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A message of these three tables. `at` is when it was sent, failed, or is due.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW sms_message AS
SELECT id, campaign_id, import_id, phone, content, coalesce(dedupe_key, phone) AS dedupe_key, 'sent' AS state, segments,
    attempts, reference, provider, message_id,
    coalesce(accepted_claims, CASE WHEN accepted > 0 THEN CAST(claim AS CHAR) END) AS accepted_claims,
    delivery_class AS class, delivery_code AS code, delivery_reason AS reason, delivery_state AS delivery, resent_at,
    created_at, sent_at AS at
FROM sms_sent
UNION ALL
SELECT id, campaign_id, import_id, phone, content, dedupe_key,
    CASE WHEN class = 'cancelled' THEN 'cancelled' ELSE 'failed' END, segments, attempts, reference, NULL, NULL, NULL,
    class, code, reason, NULL, NULL, created_at, failed_at
FROM sms_failed
UNION ALL
SELECT id, campaign_id, import_id, phone, content, dedupe_key,
    CASE state WHEN 1 THEN 'sending' WHEN 2 THEN 'unknown' ELSE 'queued' END, segments, attempts, reference, NULL, NULL,
    NULL, last_class, last_code, last_reason, NULL, NULL, created_at, due_at
FROM sms;

-- The keys of the messages of a campaign, so that a list that is imported again adds nothing twice.
CREATE TABLE IF NOT EXISTS sms_key (
    campaign_id BIGINT          NOT NULL,
    dedupe_key  VARBINARY(1024) NOT NULL,
    -- Its message was sent after it had been cancelled: another one with the key cannot free it.
    is_sent     BOOLEAN         NOT NULL DEFAULT FALSE,
    PRIMARY KEY (campaign_id, dedupe_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Attempts that were not accepted, at most 20 of each message. They are deleted with their message.
CREATE TABLE IF NOT EXISTS attempt (
    sms_id    BIGINT       NOT NULL,
    slot      INT          NOT NULL, -- claim modulo 20: a later attempt replaces an old one
    claim     BIGINT       NOT NULL,
    at        BIGINT       NOT NULL,
    provider  VARCHAR(255) NOT NULL, -- '': the worker that tried it is gone
    outcome   VARCHAR(255) NOT NULL, -- retry, throttled, failed, unknown
    class     VARCHAR(255) NOT NULL,
    code      TEXT,
    reason    TEXT         NOT NULL,
    -- Once an attempt is answered as not accepted, the message gets another one; if an earlier one may have been
    -- accepted, it keeps its reference, and `sms.doubt_claim` is -1.
    reference VARCHAR(255),
    PRIMARY KEY (sms_id, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Keys of messages that were posted over HTTP, so that a repeated request adds no message.
CREATE TABLE IF NOT EXISTS intake_key (
    scope       VARCHAR(100) NOT NULL, -- 'campaign/ID' or 'token/NAME'
    request_key CHAR(64)     NOT NULL, -- SHA-256 of the key
    fingerprint CHAR(64)     NOT NULL, -- SHA-256 of what was posted
    sms_id      BIGINT       NOT NULL,
    expires_at  BIGINT       NOT NULL,
    PRIMARY KEY (scope, request_key),
    -- To delete what has expired.
    KEY intake_key_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Counts of messages that were purged, by campaign and import, so that none seems lost. Those of a removed campaign are
-- of campaign 0.
CREATE TABLE IF NOT EXISTS purged (
    campaign_id BIGINT NOT NULL,
    import_id   BIGINT NOT NULL,           -- 0: inserted by another program
    sent        BIGINT NOT NULL DEFAULT 0,
    failed      BIGINT NOT NULL DEFAULT 0,
    unknown     BIGINT NOT NULL DEFAULT 0,
    cancelled   BIGINT NOT NULL DEFAULT 0,
    purged_at   BIGINT NOT NULL DEFAULT 0, -- when messages were purged last
    -- Of the sent messages.
    segments    BIGINT NOT NULL DEFAULT 0,
    attempts    BIGINT NOT NULL DEFAULT 0,
    repeated    BIGINT NOT NULL DEFAULT 0, -- messages that the provider accepted more than once
    delivered   BIGINT NOT NULL DEFAULT 0,
    undelivered BIGINT NOT NULL DEFAULT 0,
    expired     BIGINT NOT NULL DEFAULT 0,
    no_report   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, import_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who sends: lanes, workers, and the limits that they share

-- The parts of the queue of a campaign: which sender of which provider sends them.
CREATE TABLE IF NOT EXISTS lane (
    campaign_id BIGINT       NOT NULL,
    lane        INT          NOT NULL, -- from 1
    provider    VARCHAR(255) NOT NULL,
    sender      VARCHAR(255) NOT NULL,
    PRIMARY KEY (campaign_id, lane),
    UNIQUE KEY lane_sender (campaign_id, provider, sender)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The senders that an operator switched off.
CREATE TABLE IF NOT EXISTS sender_off (
    provider VARCHAR(255) NOT NULL,
    sender   VARCHAR(255) NOT NULL,
    since    BIGINT       NOT NULL,
    PRIMARY KEY (provider, sender)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How many messages of a campaign went to another provider, because theirs was unavailable. A worker adds a row when it
-- moves the first of them.
CREATE TABLE IF NOT EXISTS failover (
    campaign_id BIGINT       NOT NULL,
    provider    VARCHAR(255) NOT NULL,
    fallback    VARCHAR(255) NOT NULL, -- the provider that got them
    since       BIGINT       NOT NULL, -- when the provider became unavailable
    last_at     BIGINT       NOT NULL, -- when the last message was moved
    reason      TEXT         NOT NULL,
    messages    BIGINT       NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, provider, fallback, since)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Running workers. Each has its row from its start to its end; that of a killed one is deleted by the worker that
-- reclaims its messages.
CREATE TABLE IF NOT EXISTS worker (
    id              BIGINT AUTO_INCREMENT PRIMARY KEY,
    -- Which process it is, so that a worker of the same host sees at once that it has ended.
    host            VARCHAR(255) NOT NULL,
    machine_id      VARCHAR(255) NOT NULL DEFAULT '', -- '' where the machine has none
    boot_id         VARCHAR(255) NOT NULL,            -- identifies a start of the host
    pid_namespace   VARCHAR(255) NOT NULL,
    pid             BIGINT       NOT NULL,
    -- In ticks of the host: tells processes with the same pid apart.
    process_started BIGINT       NOT NULL,
    -- Random: another row may have had the same id before the database was restored.
    token           VARCHAR(64)  NOT NULL DEFAULT '',
    -- Its lease and what it does.
    started_at      BIGINT       NOT NULL,
    heartbeat_at    BIGINT       NOT NULL,
    lease_ms        BIGINT       NOT NULL,            -- it is dead if its heartbeat is older than this
    -- How many of its group commits are stored. The worker counts them, too, and so learns that some were lost.
    commits         BIGINT       NOT NULL DEFAULT 0,
    concurrency     INT          NOT NULL,
    -- Its rate limits by provider; the smallest applies to all workers.
    limits          MEDIUMTEXT   NOT NULL DEFAULT ('{}'),
    -- What it does now, a JSON object that it writes every two seconds.
    activity        MEDIUMTEXT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Workers that were declared dead. A running worker whose row is gone and that is not here knows that the database lost
-- commits.
CREATE TABLE IF NOT EXISTS reclaimed_worker (
    token        VARCHAR(64) PRIMARY KEY,
    reclaimed_at BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The limits that all workers share, and counters of budgets. A claim locks the rows of its limits, and takes permits
-- from them.
CREATE TABLE IF NOT EXISTS rate_limit (
    -- 'provider/NAME', 'sender/NAME/SENDER', 'route/NAME', 'campaign/ID', 'budget/campaign/ID/CURRENCY' or
    -- 'budget/month/MONTH/CURRENCY'.
    scope         VARCHAR(255) PRIMARY KEY,
    next_us       BIGINT       NOT NULL DEFAULT 0,      -- the earliest next start, in microseconds since the epoch
    cost_max      INT          NOT NULL DEFAULT 1,      -- the highest cost of a request since the last idle window
    buckets       TEXT         NOT NULL DEFAULT ('{}'), -- usage of long windows, and the workers that take permits
    stopped_until BIGINT       NOT NULL DEFAULT 0,      -- the pause that a provider asked for
    stop_reason   TEXT,                                 -- the provider's reason
    -- Of a budget, in millionths of its currency.
    spent         BIGINT       NOT NULL DEFAULT 0,      -- what its messages have cost
    -- From when on that has every message, 0 from the first one of its campaign; NULL: that is not known.
    counted_from  BIGINT,
    -- While the messages of a campaign are counted: a number of this count, and the workers that know of the budget.
    counting      TEXT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What happened to messages, in spans of ten seconds. Kept for two days.
CREATE TABLE IF NOT EXISTS activity (
    at          BIGINT       NOT NULL, -- when the span begins
    campaign_id BIGINT       NOT NULL,
    provider    VARCHAR(255) NOT NULL,
    sent        BIGINT       NOT NULL,
    failed      BIGINT       NOT NULL,
    unknown     BIGINT       NOT NULL,
    throttled   BIGINT       NOT NULL, -- attempts that were too fast for the provider
    unavailable BIGINT       NOT NULL, -- attempts that certainly did not reach it
    PRIMARY KEY (at, campaign_id, provider)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Recipients

-- Numbers that get no messages.
CREATE TABLE IF NOT EXISTS suppression (
    phone      VARCHAR(255) PRIMARY KEY,
    reason     TEXT,
    created_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Numbers that do not exist, as a provider said.
CREATE TABLE IF NOT EXISTS dead (
    phone    VARCHAR(255) PRIMARY KEY,
    code     TEXT, -- the provider's code
    provider VARCHAR(255) NOT NULL,
    at       BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Requests that may have reached a phone, for caps per recipient.
CREATE TABLE IF NOT EXISTS recipient_start (
    sms_id   BIGINT       NOT NULL,
    claim    BIGINT       NOT NULL,
    phone    VARCHAR(255) NOT NULL,
    ended_at BIGINT, -- the request started before this; NULL: it may still start
    PRIMARY KEY (sms_id, claim),
    -- For the cap of a recipient.
    KEY recipient_start_phone (phone),
    -- To delete what no cap counts any more.
    KEY recipient_start_ended (ended_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that recipients sent.
CREATE TABLE IF NOT EXISTS reply (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    provider    VARCHAR(255) NOT NULL,
    reply_key   VARCHAR(255) NOT NULL, -- tells those of a provider apart: the provider's id, if it has one
    phone       VARCHAR(255) NOT NULL, -- E.164 with `+`, or as the provider writes it
    sender      VARCHAR(255),          -- the number that it was sent to
    content     MEDIUMTEXT   NOT NULL,
    campaign_id BIGINT,                -- the last campaign that has the phone
    received_at BIGINT       NOT NULL,
    -- A reply that is posted twice is stored once.
    UNIQUE KEY reply_key (provider, reply_key),
    -- For lists of replies, the last ones first.
    KEY reply_received (received_at),
    -- For the replies to a campaign.
    KEY reply_campaign (campaign_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Delivery receipts

-- Receipts without a message, and all of a message that has receipts of its parts. All others are in the row of
-- `sms_sent` only.
CREATE TABLE IF NOT EXISTS receipt (
    id             BIGINT AUTO_INCREMENT PRIMARY KEY,
    provider       VARCHAR(255) NOT NULL,
    -- Our reference, the provider's id and the phone, as far as it has them.
    message_key    VARCHAR(320) NOT NULL,
    state          VARCHAR(16)  NOT NULL,
    part           INT          NOT NULL,               -- the number of the segment; 0: the whole message
    parts          INT          NOT NULL,               -- how many segments there are; 0: not known
    reference      VARCHAR(255),
    message_id     VARCHAR(255),
    phone          VARCHAR(255),
    class          VARCHAR(255),                        -- why it was not delivered, as the next two columns
    code           TEXT,
    reason         TEXT,
    is_dead_number BOOLEAN      NOT NULL DEFAULT FALSE, -- it says that the number does not exist
    at             BIGINT,                              -- by the provider's clock
    received_at    BIGINT       NOT NULL,
    -- When a receipt without a message is tried again; NULL: it is applied.
    due_at         BIGINT,
    sms_id         BIGINT,                              -- its message, once it is applied
    -- A receipt that comes twice is stored once.
    UNIQUE KEY receipt_key (provider, message_key, state, part),
    -- Receipts that are tried again.
    KEY receipt_due (due_at),
    -- Receipts without a message that may have the same one.
    KEY receipt_due_reference (reference),
    KEY receipt_due_message_id (message_id),
    -- The receipts of the parts of a message.
    KEY receipt_message (sms_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which process fetches the receipts of a provider.
CREATE TABLE IF NOT EXISTS receipt_pull (
    provider     VARCHAR(255) PRIMARY KEY,
    holder       BIGINT       NOT NULL, -- a random number of the process
    leased_until BIGINT       NOT NULL, -- another process may take over then
    pulled_at    BIGINT,                -- when the last complete pass began
    position     MEDIUMTEXT             -- where the last pass over a list stopped, as JSON; NULL: it was complete
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Events for other programs

-- Hooks that have or had events: which process delivers them, and whether they are off.
CREATE TABLE IF NOT EXISTS hook (
    name          VARCHAR(64) PRIMARY KEY,
    holder        BIGINT      NOT NULL DEFAULT 0, -- a random number of the process that delivers
    leased_until  BIGINT      NOT NULL DEFAULT 0,
    off_at        BIGINT,                         -- since when nothing is delivered; NULL: it is on
    off_reason    TEXT,
    failing_since BIGINT,                         -- the first failure since the last success
    last_error    TEXT,
    delivered     BIGINT      NOT NULL DEFAULT 0,
    skipped       BIGINT      NOT NULL DEFAULT 0  -- events that were not stored, or deleted before they were delivered
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Events that wait, and for a time those that were delivered or given up.
CREATE TABLE IF NOT EXISTS hook_event (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    hook       VARCHAR(64) NOT NULL,
    event_id   VARCHAR(64) NOT NULL,
    kind       VARCHAR(64) NOT NULL,
    body       MEDIUMTEXT  NOT NULL,           -- JSON
    phone      VARCHAR(255),                   -- the person whose data the body has
    created_at BIGINT      NOT NULL,
    state      INT         NOT NULL DEFAULT 0, -- 0 waiting, 1 delivered, 2 given up
    at         BIGINT      NOT NULL,           -- when it is delivered next, or when its state ended
    attempts   INT         NOT NULL DEFAULT 0,
    last_error TEXT,
    -- The events of a hook that are due, and those that can be deleted.
    KEY hook_event_state (hook, state, at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Campaigns that are not done, for events about them.
CREATE TABLE IF NOT EXISTS campaign_watch (
    campaign_id BIGINT PRIMARY KEY,
    opened_at   BIGINT NOT NULL,
    due_since   BIGINT, -- since when its messages should be accepted
    stuck_at    BIGINT  -- when an event said that none is
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Recurring campaigns

-- Campaigns that are imported from a query again and again.
CREATE TABLE IF NOT EXISTS schedule (
    id           BIGINT AUTO_INCREMENT PRIMARY KEY,
    name         VARCHAR(255) NOT NULL UNIQUE,
    cron         VARCHAR(255) NOT NULL,
    timezone     VARCHAR(255) NOT NULL,
    source       TEXT         NOT NULL,           -- a URL without a password, or the name of a source
    query        MEDIUMTEXT   NOT NULL,
    unique_by    VARCHAR(255) NOT NULL,           -- the key: one message per value and period
    per          VARCHAR(255) NOT NULL,           -- the period: day, week, month or run
    options      MEDIUMTEXT   NOT NULL,           -- the text and how messages are made, a JSON object
    catch_up     BOOLEAN      NOT NULL,           -- fires that were missed are made up for, one after the other
    is_paused    BOOLEAN      NOT NULL DEFAULT FALSE,
    -- The run that is next or in progress.
    fire         VARCHAR(255) NOT NULL,           -- its local time
    period       VARCHAR(255) NOT NULL,           -- that it belongs to
    next_at      BIGINT       NOT NULL,           -- when it is due, or due again
    attempts     INT          NOT NULL DEFAULT 0, -- that failed
    holder       BIGINT       NOT NULL DEFAULT 0, -- the process that runs it
    leased_until BIGINT       NOT NULL DEFAULT 0,
    created_at   BIGINT       NOT NULL,
    created_by   VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Runs of schedules, and spans of fires that were missed.
CREATE TABLE IF NOT EXISTS schedule_run (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    schedule_id BIGINT       NOT NULL,
    fire        VARCHAR(255) NOT NULL, -- local time
    period      VARCHAR(255) NOT NULL,
    campaign    VARCHAR(255) NOT NULL, -- its name
    keys_until  BIGINT       NOT NULL, -- before then no purge forgets who got a message of the campaign
    state       INT          NOT NULL, -- 0 in progress, 1 done, 2 missed
    started_at  BIGINT       NOT NULL,
    finished_at BIGINT,
    -- A run that somebody asked for was interrupted if this passes while it is in progress.
    asked_until BIGINT,
    row_count   BIGINT       NOT NULL DEFAULT 0,
    accepted    BIGINT       NOT NULL DEFAULT 0,
    suppressed  BIGINT       NOT NULL DEFAULT 0,
    rejected    BIGINT       NOT NULL DEFAULT 0,
    reasons     TEXT,                  -- of the rejected rows, with their counts
    error       TEXT,                  -- of the last attempt, or why it was missed
    UNIQUE (schedule_id, fire),
    -- For a purge: whether the keys of a campaign are still needed.
    KEY schedule_run_campaign (campaign)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Approvals by a second person

-- What has to be approved before it is sent: messages that came together, or a change of the settings of a campaign.
-- Its messages wait in lane `-id` of their campaign.
CREATE TABLE IF NOT EXISTS approval (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    campaign_id BIGINT       NOT NULL,
    -- True: of messages; false: of the settings, so that all messages of the campaign wait.
    has_lane    BOOLEAN      NOT NULL,
    -- 0 not needed, 1 undecided, because messages are being added, 2 waiting, 3 granted, 4 granted and begun, 5
    -- rejected, 6 ended without a decision.
    state       INT          NOT NULL,
    hash        VARCHAR(255) NOT NULL DEFAULT '', -- of the list; '': other messages
    messages    BIGINT       NOT NULL DEFAULT 0,  -- how many were added
    reason      TEXT         NOT NULL,            -- why it is needed
    decided_at  BIGINT       NOT NULL DEFAULT 0,  -- when it was granted
    -- For claims: what of a campaign waits.
    KEY approval_campaign (campaign_id, state)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who added messages or changed settings: they cannot approve them.
CREATE TABLE IF NOT EXISTS approval_author (
    approval_id BIGINT       NOT NULL,
    who         VARCHAR(255) NOT NULL,
    PRIMARY KEY (approval_id, who)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The strictest rules of section `[approval]` that any process has had.
CREATE TABLE IF NOT EXISTS approval_rule (
    name  VARCHAR(64)  PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The database itself

-- What people changed, and what workers paused or stopped. The transaction of the change writes it.
CREATE TABLE IF NOT EXISTS audit (
    id       BIGINT AUTO_INCREMENT PRIMARY KEY,
    at       BIGINT       NOT NULL,
    who      VARCHAR(255) NOT NULL, -- a token, the user of a command, or 'worker'
    what     VARCHAR(255) NOT NULL,
    campaign TEXT,
    detail   TEXT         NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whether the messages of this database are practice: no phone gets any of them. One row, which smsq writes together
-- with the tables and never changes.
CREATE TABLE IF NOT EXISTS database_mode (
    id          INT     PRIMARY KEY, -- always 1
    is_practice BOOLEAN NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
