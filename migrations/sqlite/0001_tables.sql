-- The tables of smsq. Defaults of instants use julianday because old sqlite3 shells have no other clock. Rows of a
-- table WITHOUT ROWID are stored in the order of their key.
--
-- In all of them columns `…_at`, `at` and `since` are instants in milliseconds since the Unix epoch by the database's
-- clock, which is that of the host. A phone is E.164 with `+` unless another program has written it. A message keeps
-- its id, from `sms` to `sms_sent` or `sms_failed`. `provider` is the name of a section `[providers.NAME]`. What names
-- a person is a token of the server or the user of a command.

-- Campaigns and lists

-- Campaigns. Campaign 1, `default`, is that of messages which another program inserts without one.
CREATE TABLE campaign (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT    NOT NULL UNIQUE,
    provider        TEXT,                        -- NULL: the configuration's `default_provider`
    sender          TEXT,                        -- NULL: that of the provider
    rate            TEXT    NOT NULL DEFAULT '', -- '100/s,20000/day', or '' without a limit
    priority        INTEGER NOT NULL DEFAULT 0,  -- higher goes first
    send_window     TEXT    NOT NULL DEFAULT '', -- '09:00-20:00 mon-fri Asia/Shanghai', or '' for any time
    -- The most that it may cost, such as '500.00 EUR'; '': any amount.
    budget          TEXT    NOT NULL DEFAULT '',
    state           INTEGER NOT NULL DEFAULT 0,  -- 0 active, 1 paused, 2 stopped, 3 cancelled
    state_reason    TEXT,                        -- why it is paused or stopped
    -- Whether a second person has to approve: 0 nothing of it needed that yet, 1 some of its messages wait, 2 nothing
    -- waits, and new messages and settings need it, 3 as 0, while a list is added that may need it, 4 all its messages
    -- wait.
    approval        INTEGER NOT NULL DEFAULT 0,
    approval_reason TEXT,                        -- what its messages wait for
    unique_by       TEXT,                        -- the columns of its dedupe keys
    created_at      BIGINT  NOT NULL
                    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
INSERT INTO campaign (id, name) VALUES (1, 'default');

-- Lists that were imported, posted or uploaded. The transaction that adds rows counts them.
CREATE TABLE import (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id BIGINT NOT NULL,
    file        TEXT   NOT NULL,           -- its name
    hash        TEXT   NOT NULL,           -- of its content: the same list continues after its last line
    last_line   BIGINT NOT NULL DEFAULT 0, -- the last line that is stored
    row_count   BIGINT NOT NULL DEFAULT 0, -- rows that were read; the next four columns say what became of them
    accepted    BIGINT NOT NULL DEFAULT 0,
    duplicates  BIGINT NOT NULL DEFAULT 0,
    suppressed  BIGINT NOT NULL DEFAULT 0,
    rejected    BIGINT NOT NULL DEFAULT 0,
    replaced    BIGINT NOT NULL DEFAULT 0, -- accepted messages that failed and were replaced by a later import
    template    TEXT,                      -- the text of its messages, with placeholders
    sample      TEXT,                      -- without a template: the text of its first message
    gsm7        BIGINT NOT NULL DEFAULT 0, -- accepted messages in this alphabet
    ucs2        BIGINT NOT NULL DEFAULT 0,
    posted_by   TEXT,                      -- the token with which it was posted
    created_at  BIGINT NOT NULL,
    finished_at BIGINT                     -- NULL: it is read, or was interrupted
);

-- Messages

-- The queue: messages that are ready, being sent, or unknown. Another program may insert rows with `phone` and
-- `content` alone. A text or blob in the place of an instant is refused, because SQLite sorts it after all numbers, so
-- that it would never be due.
CREATE TABLE sms (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id         BIGINT  NOT NULL DEFAULT 1,
    import_id           BIGINT,                        -- NULL: inserted by another program
    phone               TEXT    NOT NULL,
    content             TEXT    NOT NULL,              -- the text
    params              TEXT    NOT NULL DEFAULT '{}', -- the columns of its row, a JSON object of strings
    segments            INTEGER,                       -- NULL until it is counted
    dedupe_key          TEXT,                          -- its key in `sms_key`
    created_at          BIGINT  NOT NULL
                        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    -- When it is sent: a worker claims the due messages of a lane. State: 0 ready, 1 sending, 2 unknown.
    state               INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    -- 0: any sender; above 0: that of table `lane`; below 0: `approval.id`, negative.
    lane                INTEGER NOT NULL DEFAULT 0,
    -- Not sent before.
    due_at              BIGINT  NOT NULL
                        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
                        CHECK (typeof(due_at) NOT IN ('text', 'blob')),
    -- Not sent after.
    expires_at          BIGINT  CHECK (typeof(expires_at) NOT IN ('text', 'blob')),
    attempts            INTEGER NOT NULL DEFAULT 0,    -- attempts that have ended and count
    -- Its claim, which is stored before its request starts.
    worker_id           BIGINT,                        -- the worker that sends it
    -- The number of the last claim: a settlement names its claim.
    claim               BIGINT  NOT NULL DEFAULT 0,
    claimed_at          BIGINT,
    -- The provider that it was last sent through; of a message in doubt the provider of all its attempts, or '' if they
    -- went through several.
    claimed_provider    TEXT,
    -- Our id for the message at the provider: 16 random characters and `id`.
    reference           TEXT,
    refunded_claim      BIGINT,                        -- the claim whose attempt does not count
    -- Its doubt: whether an attempt may have been accepted.
    in_doubt            BOOLEAN NOT NULL DEFAULT FALSE,
    -- When the first such attempt was claimed; NULL also where that is not known.
    doubt_since         BIGINT,
    -- The claim of the only such attempt, if no attempt was made after it; -1: an attempt with its reference was not
    -- accepted.
    doubt_claim         BIGINT,
    -- No attempt that may have been accepted started after this.
    unknown_at          BIGINT,
    -- An operator sends it again: no doubt from before prevents the next attempts, until one ends in doubt.
    resend_approved     BOOLEAN NOT NULL DEFAULT FALSE,
    -- The last failure, for reports.
    last_class          TEXT,
    last_code           TEXT,
    last_reason         TEXT,
    -- Acceptances of older claims that came while this one was sending.
    late_accepted       INTEGER NOT NULL DEFAULT 0,    -- how many
    late_claims         TEXT,                          -- the numbers of those claims, separated by commas
    -- The last of them, as the next two columns: the provider's id.
    late_message_id     TEXT,
    late_provider       TEXT,
    late_awaits_receipt BOOLEAN,                       -- whether its receipt is awaited
    -- What it has taken from budgets, in millionths of the currency.
    reserved            BIGINT  NOT NULL DEFAULT 0,    -- for its current claim while it is sending
    reserved_earlier    BIGINT  NOT NULL DEFAULT 0,    -- for earlier attempts that may have been accepted
    reserved_month      TEXT                           -- the month and currency of both, such as '2026-11/EUR'
);
-- For claims: the due messages of a lane.
CREATE INDEX sms_due ON sms (campaign_id, state, lane, due_at);
-- To find and count the messages of other programs.
CREATE INDEX sms_plain ON sms (campaign_id) WHERE import_id IS NULL;
-- For receipts and lookups of unknown messages, by their reference and in the order of their claims.
CREATE INDEX sms_unknown_reference ON sms (reference) WHERE state = 2;
CREATE INDEX sms_unknown_claimed ON sms (claimed_at) WHERE state = 2;

-- Accepted messages, and what became of them.
CREATE TABLE sms_sent (
    id              INTEGER PRIMARY KEY,        -- as in `sms`, like the next four
    campaign_id     BIGINT  NOT NULL,
    import_id       BIGINT,
    phone           TEXT    NOT NULL,
    dedupe_key      TEXT,                       -- unless it is the phone
    reference       TEXT,
    provider        TEXT    NOT NULL,
    message_id      TEXT,                       -- the provider's id
    segments        INTEGER,
    price           TEXT,                       -- as the provider wrote it
    attempts        INTEGER NOT NULL,
    accepted        INTEGER NOT NULL DEFAULT 1, -- how often the provider accepted it
    accepted_claims TEXT,                       -- by which claims, separated by commas; NULL: by `claim`
    claim           BIGINT  NOT NULL,
    created_at      BIGINT  NOT NULL,
    sent_at         BIGINT  NOT NULL,           -- when it was accepted
    -- Its delivery, as receipts say. The state is NULL where no receipt is fetched, else 'awaiting', 'delivered',
    -- 'undelivered', 'expired' or 'no_report'.
    delivery_state  TEXT,
    delivery_class  TEXT,                       -- why it was not delivered, as the next two columns
    delivery_code   TEXT,
    delivery_reason TEXT,
    delivery_at     BIGINT,
    delivery_note   TEXT,                       -- a later receipt that contradicts the state
    -- Of a message that is not delivered, so that it can be fixed and sent again.
    content         TEXT,
    params          TEXT,
    resent_at       BIGINT                      -- when an import queued a fixed message for it
);
-- For reports of a campaign, in the order of time.
CREATE INDEX sms_sent_when ON sms_sent (campaign_id, sent_at);
-- To count the messages of other programs.
CREATE INDEX sms_sent_plain ON sms_sent (campaign_id) WHERE import_id IS NULL;
-- For receipts: by the provider's id.
CREATE INDEX sms_sent_message ON sms_sent (message_id);
-- For receipts: by a reference that does not end with the id of its message, because another program wrote it.
CREATE INDEX sms_sent_other_reference ON sms_sent (reference)
    WHERE delivery_state IS NOT NULL AND substr(reference, 17) <> CAST(id AS TEXT);
-- For lists and counts by state of delivery.
CREATE INDEX sms_sent_delivery ON sms_sent (campaign_id, delivery_state) WHERE delivery_state IS NOT NULL;
-- For receipts: the age of the messages whose receipt is awaited.
CREATE INDEX sms_sent_awaiting ON sms_sent (provider, sent_at) WHERE delivery_state = 'awaiting';

-- Messages that failed, expired or were cancelled.
CREATE TABLE sms_failed (
    id               INTEGER PRIMARY KEY, -- as in `sms`, like the columns up to `expires_at`
    campaign_id      BIGINT  NOT NULL,
    import_id        BIGINT,
    phone            TEXT    NOT NULL,
    content          TEXT    NOT NULL,
    params           TEXT    NOT NULL,
    segments         INTEGER,
    expires_at       BIGINT,
    class            TEXT    NOT NULL,    -- the kind of failure: recipient, content, expired, cancelled, …
    code             TEXT,                -- the provider's code
    reason           TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    claim            BIGINT  NOT NULL,
    reference        TEXT,
    dedupe_key       TEXT,
    created_at       BIGINT  NOT NULL,
    failed_at        BIGINT  NOT NULL,
    doubt_since      BIGINT,              -- of a message that an operator settled as failed, as the next column
    claimed_provider TEXT
);
-- For reports and `smsq retry`.
CREATE INDEX sms_failed_class ON sms_failed (campaign_id, class);
-- To count the messages of other programs.
CREATE INDEX sms_failed_plain ON sms_failed (campaign_id) WHERE import_id IS NULL;
-- For receipts, which may show that the message was accepted.
CREATE INDEX sms_failed_reference ON sms_failed (reference);

-- A message of these three tables. `at` is when it was sent, failed, or is due.
CREATE VIEW sms_message AS
SELECT id, campaign_id, import_id, phone, content, coalesce(dedupe_key, phone) AS dedupe_key, 'sent' AS state, segments,
    attempts, reference, provider, message_id,
    coalesce(accepted_claims, CASE WHEN accepted > 0 THEN CAST(claim AS TEXT) END) AS accepted_claims,
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
CREATE TABLE sms_key (
    campaign_id BIGINT  NOT NULL,
    dedupe_key  TEXT    NOT NULL,
    -- Its message was sent after it had been cancelled: another one with the key cannot free it.
    is_sent     BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (campaign_id, dedupe_key)
) WITHOUT ROWID;

-- Attempts that were not accepted, at most 20 of each message. They are deleted with their message.
CREATE TABLE attempt (
    sms_id    BIGINT  NOT NULL,
    slot      INTEGER NOT NULL, -- claim modulo 20: a later attempt replaces an old one
    claim     BIGINT  NOT NULL,
    at        BIGINT  NOT NULL,
    provider  TEXT    NOT NULL, -- '': the worker that tried it is gone
    outcome   TEXT    NOT NULL, -- retry, throttled, failed, unknown
    class     TEXT    NOT NULL,
    code      TEXT,
    reason    TEXT    NOT NULL,
    -- Once an attempt is answered as not accepted, the message gets another one; if an earlier one may have been
    -- accepted, it keeps its reference, and `sms.doubt_claim` is -1.
    reference TEXT,
    PRIMARY KEY (sms_id, slot)
) WITHOUT ROWID;

-- Keys of messages that were posted over HTTP, so that a repeated request adds no message.
CREATE TABLE intake_key (
    scope       TEXT   NOT NULL, -- 'campaign/ID' or 'token/NAME'
    request_key TEXT   NOT NULL, -- SHA-256 of the key
    fingerprint TEXT   NOT NULL, -- SHA-256 of what was posted
    sms_id      BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    PRIMARY KEY (scope, request_key)
) WITHOUT ROWID;
-- To delete what has expired.
CREATE INDEX intake_key_expires ON intake_key (expires_at);

-- Counts of messages that were purged, by campaign and import, so that none seems lost. Those of a removed campaign are
-- of campaign 0.
CREATE TABLE purged (
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
) WITHOUT ROWID;

-- Who sends: lanes, workers, and the limits that they share

-- The parts of the queue of a campaign: which sender of which provider sends them.
CREATE TABLE lane (
    campaign_id BIGINT  NOT NULL,
    lane        INTEGER NOT NULL, -- from 1
    provider    TEXT    NOT NULL,
    sender      TEXT    NOT NULL,
    PRIMARY KEY (campaign_id, lane),
    UNIQUE (campaign_id, provider, sender)
);

-- The senders that an operator switched off.
CREATE TABLE sender_off (
    provider TEXT   NOT NULL,
    sender   TEXT   NOT NULL,
    since    BIGINT NOT NULL,
    PRIMARY KEY (provider, sender)
);

-- How many messages of a campaign went to another provider, because theirs was unavailable. A worker adds a row when it
-- moves the first of them.
CREATE TABLE failover (
    campaign_id BIGINT NOT NULL,
    provider    TEXT   NOT NULL,
    fallback    TEXT   NOT NULL, -- the provider that got them
    since       BIGINT NOT NULL, -- when the provider became unavailable
    last_at     BIGINT NOT NULL, -- when the last message was moved
    reason      TEXT   NOT NULL,
    messages    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, provider, fallback, since)
);

-- Running workers. Each has its row from its start to its end; that of a killed one is deleted by the worker that
-- reclaims its messages.
CREATE TABLE worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Which process it is, so that a worker of the same host sees at once that it has ended.
    host            TEXT    NOT NULL,
    machine_id      TEXT    NOT NULL DEFAULT '', -- '' where the machine has none
    boot_id         TEXT    NOT NULL,            -- identifies a start of the host
    pid_namespace   TEXT    NOT NULL,
    pid             BIGINT  NOT NULL,
    -- In ticks of the host: tells processes with the same pid apart.
    process_started BIGINT  NOT NULL,
    -- Random: another row may have had the same id before the database was restored.
    token           TEXT    NOT NULL DEFAULT '',
    -- Its lease and what it does.
    started_at      BIGINT  NOT NULL,
    heartbeat_at    BIGINT  NOT NULL,
    lease_ms        BIGINT  NOT NULL,            -- it is dead if its heartbeat is older than this
    -- How many of its group commits are stored. The worker counts them, too, and so learns that some were lost.
    commits         BIGINT  NOT NULL DEFAULT 0,
    concurrency     INTEGER NOT NULL,
    -- Its rate limits by provider; the smallest applies to all workers.
    limits          TEXT    NOT NULL DEFAULT '{}',
    -- What it does now, a JSON object that it writes every two seconds.
    activity        TEXT
);

-- Workers that were declared dead. A running worker whose row is gone and that is not here knows that the database lost
-- commits.
CREATE TABLE reclaimed_worker (
    token        TEXT   PRIMARY KEY NOT NULL,
    reclaimed_at BIGINT NOT NULL
) WITHOUT ROWID;

-- The limits that all workers share, and counters of budgets. A claim locks the rows of its limits, and takes permits
-- from them.
CREATE TABLE rate_limit (
    -- 'provider/NAME', 'sender/NAME/SENDER', 'route/NAME', 'campaign/ID', 'budget/campaign/ID/CURRENCY' or
    -- 'budget/month/MONTH/CURRENCY'.
    scope         TEXT    PRIMARY KEY NOT NULL,
    next_us       BIGINT  NOT NULL DEFAULT 0,    -- the earliest next start, in microseconds since the epoch
    cost_max      INTEGER NOT NULL DEFAULT 1,    -- the highest cost of a request since the last idle window
    buckets       TEXT    NOT NULL DEFAULT '{}', -- usage of long windows, and the workers that take permits
    stopped_until BIGINT  NOT NULL DEFAULT 0,    -- the pause that a provider asked for
    stop_reason   TEXT,                          -- the provider's reason
    -- Of a budget, in millionths of its currency.
    spent         BIGINT  NOT NULL DEFAULT 0,    -- what its messages have cost
    -- From when on that has every message, 0 from the first one of its campaign; NULL: that is not known.
    counted_from  BIGINT,
    -- While the messages of a campaign are counted: a number of this count, and the workers that know of the budget.
    counting      TEXT
);

-- What happened to messages, in spans of ten seconds. Kept for two days.
CREATE TABLE activity (
    at          BIGINT NOT NULL, -- when the span begins
    campaign_id BIGINT NOT NULL,
    provider    TEXT   NOT NULL,
    sent        BIGINT NOT NULL,
    failed      BIGINT NOT NULL,
    unknown     BIGINT NOT NULL,
    throttled   BIGINT NOT NULL, -- attempts that were too fast for the provider
    unavailable BIGINT NOT NULL, -- attempts that certainly did not reach it
    PRIMARY KEY (at, campaign_id, provider)
) WITHOUT ROWID;

-- Recipients

-- Numbers that get no messages.
CREATE TABLE suppression (
    phone      TEXT   PRIMARY KEY NOT NULL,
    reason     TEXT,
    created_at BIGINT NOT NULL
) WITHOUT ROWID;

-- Numbers that do not exist, as a provider said.
CREATE TABLE dead (
    phone    TEXT   PRIMARY KEY NOT NULL,
    code     TEXT, -- the provider's code
    provider TEXT   NOT NULL,
    at       BIGINT NOT NULL
) WITHOUT ROWID;

-- Requests that may have reached a phone, for caps per recipient.
CREATE TABLE recipient_start (
    sms_id   INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    phone    TEXT    NOT NULL,
    ended_at INTEGER, -- the request started before this; NULL: it may still start
    PRIMARY KEY (sms_id, claim)
) WITHOUT ROWID;
-- For the cap of a recipient.
CREATE INDEX recipient_start_phone ON recipient_start (phone);
-- To delete what no cap counts any more.
CREATE INDEX recipient_start_ended ON recipient_start (ended_at);

-- Messages that recipients sent.
CREATE TABLE reply (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    provider    TEXT   NOT NULL,
    reply_key   TEXT   NOT NULL, -- tells those of a provider apart: the provider's id, if it has one
    phone       TEXT   NOT NULL, -- E.164 with `+`, or as the provider writes it
    sender      TEXT,            -- the number that it was sent to
    content     TEXT   NOT NULL,
    campaign_id BIGINT,          -- the last campaign that has the phone
    received_at BIGINT NOT NULL
);
-- A reply that is posted twice is stored once.
CREATE UNIQUE INDEX reply_key ON reply (provider, reply_key);
-- For lists of replies, the last ones first.
CREATE INDEX reply_received ON reply (received_at);
-- For the replies to a campaign.
CREATE INDEX reply_campaign ON reply (campaign_id);

-- Delivery receipts

-- Receipts without a message, and all of a message that has receipts of its parts. All others are in the row of
-- `sms_sent` only.
CREATE TABLE receipt (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    provider       TEXT    NOT NULL,
    -- Our reference, the provider's id and the phone, as far as it has them.
    message_key    TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    part           INTEGER NOT NULL,               -- the number of the segment; 0: the whole message
    parts          INTEGER NOT NULL,               -- how many segments there are; 0: not known
    reference      TEXT,
    message_id     TEXT,
    phone          TEXT,
    class          TEXT,                           -- why it was not delivered, as the next two columns
    code           TEXT,
    reason         TEXT,
    is_dead_number BOOLEAN NOT NULL DEFAULT FALSE, -- it says that the number does not exist
    at             BIGINT,                         -- by the provider's clock
    received_at    BIGINT  NOT NULL,
    -- When a receipt without a message is tried again; NULL: it is applied.
    due_at         BIGINT,
    sms_id         BIGINT                          -- its message, once it is applied
);
-- A receipt that comes twice is stored once.
CREATE UNIQUE INDEX receipt_key ON receipt (provider, message_key, state, part);
-- Receipts that are tried again.
CREATE INDEX receipt_due ON receipt (due_at) WHERE due_at IS NOT NULL;
-- Receipts without a message that may have the same one.
CREATE INDEX receipt_due_reference ON receipt (reference) WHERE due_at IS NOT NULL;
CREATE INDEX receipt_due_message_id ON receipt (message_id) WHERE due_at IS NOT NULL;
-- The receipts of the parts of a message.
CREATE INDEX receipt_message ON receipt (sms_id) WHERE sms_id IS NOT NULL;

-- Which process fetches the receipts of a provider.
CREATE TABLE receipt_pull (
    provider     TEXT   PRIMARY KEY NOT NULL,
    holder       BIGINT NOT NULL, -- a random number of the process
    leased_until BIGINT NOT NULL, -- another process may take over then
    pulled_at    BIGINT,          -- when the last complete pass began
    position     TEXT             -- where the last pass over a list stopped, as JSON; NULL: it was complete
) WITHOUT ROWID;

-- Events for other programs

-- Hooks that have or had events: which process delivers them, and whether they are off.
CREATE TABLE hook (
    name          TEXT   PRIMARY KEY NOT NULL,
    holder        BIGINT NOT NULL DEFAULT 0, -- a random number of the process that delivers
    leased_until  BIGINT NOT NULL DEFAULT 0,
    off_at        BIGINT,                    -- since when nothing is delivered; NULL: it is on
    off_reason    TEXT,
    failing_since BIGINT,                    -- the first failure since the last success
    last_error    TEXT,
    delivered     BIGINT NOT NULL DEFAULT 0,
    skipped       BIGINT NOT NULL DEFAULT 0  -- events that were not stored, or deleted before they were delivered
) WITHOUT ROWID;

-- Events that wait, and for a time those that were delivered or given up.
CREATE TABLE hook_event (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    hook       TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    body       TEXT    NOT NULL,           -- JSON
    phone      TEXT,                       -- the person whose data the body has
    created_at BIGINT  NOT NULL,
    state      INTEGER NOT NULL DEFAULT 0, -- 0 waiting, 1 delivered, 2 given up
    at         BIGINT  NOT NULL,           -- when it is delivered next, or when its state ended
    attempts   INTEGER NOT NULL DEFAULT 0,
    last_error TEXT
);
-- The events of a hook that are due, and those that can be deleted.
CREATE INDEX hook_event_state ON hook_event (hook, state, at);

-- Campaigns that are not done, for events about them.
CREATE TABLE campaign_watch (
    campaign_id BIGINT PRIMARY KEY NOT NULL,
    opened_at   BIGINT NOT NULL,
    due_since   BIGINT, -- since when its messages should be accepted
    stuck_at    BIGINT  -- when an event said that none is
) WITHOUT ROWID;

-- Recurring campaigns

-- Campaigns that are imported from a query again and again.
CREATE TABLE schedule (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE,
    cron         TEXT    NOT NULL,
    timezone     TEXT    NOT NULL,
    source       TEXT    NOT NULL,           -- a URL without a password, or the name of a source
    query        TEXT    NOT NULL,
    unique_by    TEXT    NOT NULL,           -- the key: one message per value and period
    per          TEXT    NOT NULL,           -- the period: day, week, month or run
    options      TEXT    NOT NULL,           -- the text and how messages are made, a JSON object
    catch_up     BOOLEAN NOT NULL,           -- fires that were missed are made up for, one after the other
    is_paused    BOOLEAN NOT NULL DEFAULT FALSE,
    -- The run that is next or in progress.
    fire         TEXT    NOT NULL,           -- its local time
    period       TEXT    NOT NULL,           -- that it belongs to
    next_at      BIGINT  NOT NULL,           -- when it is due, or due again
    attempts     INTEGER NOT NULL DEFAULT 0, -- that failed
    holder       BIGINT  NOT NULL DEFAULT 0, -- the process that runs it
    leased_until BIGINT  NOT NULL DEFAULT 0,
    created_at   BIGINT  NOT NULL,
    created_by   TEXT    NOT NULL
);

-- Runs of schedules, and spans of fires that were missed.
CREATE TABLE schedule_run (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id BIGINT  NOT NULL,
    fire        TEXT    NOT NULL, -- local time
    period      TEXT    NOT NULL,
    campaign    TEXT    NOT NULL, -- its name
    keys_until  BIGINT  NOT NULL, -- before then no purge forgets who got a message of the campaign
    state       INTEGER NOT NULL, -- 0 in progress, 1 done, 2 missed
    started_at  BIGINT  NOT NULL,
    finished_at BIGINT,
    -- A run that somebody asked for was interrupted if this passes while it is in progress.
    asked_until BIGINT,
    row_count   BIGINT  NOT NULL DEFAULT 0,
    accepted    BIGINT  NOT NULL DEFAULT 0,
    suppressed  BIGINT  NOT NULL DEFAULT 0,
    rejected    BIGINT  NOT NULL DEFAULT 0,
    reasons     TEXT,             -- of the rejected rows, with their counts
    error       TEXT,             -- of the last attempt, or why it was missed
    UNIQUE (schedule_id, fire)
);
-- For a purge: whether the keys of a campaign are still needed.
CREATE INDEX schedule_run_campaign ON schedule_run (campaign);

-- Approvals by a second person

-- What has to be approved before it is sent: messages that came together, or a change of the settings of a campaign.
-- Its messages wait in lane `-id` of their campaign.
CREATE TABLE approval (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id BIGINT  NOT NULL,
    -- True: of messages; false: of the settings, so that all messages of the campaign wait.
    has_lane    BOOLEAN NOT NULL,
    -- 0 not needed, 1 undecided, because messages are being added, 2 waiting, 3 granted, 4 granted and begun, 5
    -- rejected, 6 ended without a decision.
    state       INTEGER NOT NULL,
    hash        TEXT    NOT NULL DEFAULT '', -- of the list; '': other messages
    messages    BIGINT  NOT NULL DEFAULT 0,  -- how many were added
    reason      TEXT    NOT NULL,            -- why it is needed
    decided_at  BIGINT  NOT NULL DEFAULT 0   -- when it was granted
);
-- For claims: what of a campaign waits.
CREATE INDEX approval_campaign ON approval (campaign_id, state);

-- Who added messages or changed settings: they cannot approve them.
CREATE TABLE approval_author (
    approval_id BIGINT NOT NULL,
    who         TEXT   NOT NULL,
    PRIMARY KEY (approval_id, who)
);

-- The strictest rules of section `[approval]` that any process has had.
CREATE TABLE approval_rule (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- The database itself

-- What people changed, and what workers paused or stopped. The transaction of the change writes it.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       BIGINT NOT NULL,
    who      TEXT   NOT NULL, -- a token, the user of a command, or 'worker'
    what     TEXT   NOT NULL,
    campaign TEXT,
    detail   TEXT   NOT NULL
);

-- Whether the messages of this database are practice: no phone gets any of them. One row, which smsq writes together
-- with the tables and never changes.
CREATE TABLE database_mode (
    id          INTEGER PRIMARY KEY, -- always 1
    is_practice BOOLEAN NOT NULL
);

-- Every insert into a table with AUTOINCREMENT looks for it in this list, from its begin: that of messages is the
-- first.
INSERT INTO sqlite_sequence (rowid, name, seq) VALUES (-1, 'sms', 0);
