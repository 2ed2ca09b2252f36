-- Instants are milliseconds since the Unix epoch. Defaults use julianday because old sqlite3 shells have no other
-- clock.

CREATE TABLE campaign (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE,
    provider     TEXT,                        -- NULL: the configuration's default_provider
    sender       TEXT,
    rate         TEXT    NOT NULL DEFAULT '', -- '100/s,20000/day', or '' without a limit
    priority     INTEGER NOT NULL DEFAULT 0,  -- higher goes first
    state        INTEGER NOT NULL DEFAULT 0,  -- 0 active, 1 paused, 2 stopped, 3 cancelled
    state_reason TEXT,
    unique_by    TEXT,                        -- the columns of its dedupe keys
    created_at   BIGINT  NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
INSERT INTO campaign (id, name) VALUES (1, 'default');

CREATE TABLE import (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id  BIGINT  NOT NULL,
    file         TEXT    NOT NULL,
    hash         TEXT    NOT NULL,
    last_line    BIGINT  NOT NULL DEFAULT 0,
    row_count    BIGINT  NOT NULL DEFAULT 0,
    accepted     BIGINT  NOT NULL DEFAULT 0,
    duplicates   BIGINT  NOT NULL DEFAULT 0,
    suppressed   BIGINT  NOT NULL DEFAULT 0,
    rejected     BIGINT  NOT NULL DEFAULT 0,
    replaced     BIGINT  NOT NULL DEFAULT 0,  -- accepted messages that failed and were replaced by a later import
    template     TEXT,                        -- the text of its messages, with placeholders
    sample       TEXT,                        -- without a template: the text of its first message
    gsm7         BIGINT  NOT NULL DEFAULT 0,  -- accepted messages in this alphabet
    ucs2         BIGINT  NOT NULL DEFAULT 0,
    created_at   BIGINT  NOT NULL,
    finished_at  BIGINT
);

CREATE TABLE sms (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id     BIGINT  NOT NULL DEFAULT 1,
    import_id       BIGINT,                      -- NULL: inserted by another program
    phone           TEXT    NOT NULL,
    content         TEXT    NOT NULL,
    params          TEXT    NOT NULL DEFAULT '{}',
    segments        INTEGER,
    state           INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- 0 ready, 1 sending, 2 unknown
    in_doubt        BOOLEAN NOT NULL DEFAULT 0,
    -- SQLite sorts a text after all numbers, so it would never be due.
    due_at          BIGINT  NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
                    CHECK (typeof(due_at) NOT IN ('text', 'blob')),
    expires_at      BIGINT  CHECK (typeof(expires_at) NOT IN ('text', 'blob')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    worker_id       BIGINT,
    claim           BIGINT  NOT NULL DEFAULT 0,
    claimed_at      BIGINT,
    unknown_at      BIGINT,                      -- no attempt that may have been accepted started after this
    reference       TEXT,
    dedupe_key      TEXT,
    last_class      TEXT,
    last_code       TEXT,
    last_reason     TEXT,
    late_accepted   INTEGER NOT NULL DEFAULT 0,  -- older claims accepted while this one was sending
    late_message_id TEXT,
    late_claims     TEXT,                        -- the numbers of those claims, separated by commas
    refunded_claim  BIGINT,                      -- the claim whose attempt was refunded
    created_at      BIGINT  NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
CREATE INDEX sms_due ON sms (campaign_id, state, due_at);
CREATE INDEX sms_plain ON sms (campaign_id) WHERE import_id IS NULL;

CREATE TABLE sms_sent (
    id             INTEGER PRIMARY KEY,
    campaign_id    BIGINT  NOT NULL,
    import_id      BIGINT,
    phone          TEXT    NOT NULL,
    reference      TEXT,
    provider       TEXT    NOT NULL,
    message_id     TEXT,
    segments       INTEGER,
    price          TEXT,
    attempts       INTEGER NOT NULL,
    accepted       INTEGER NOT NULL DEFAULT 1,  -- how often the provider accepted it
    accepted_claims TEXT,                       -- by which claims, separated by commas; NULL: by `claim`
    claim          BIGINT  NOT NULL,
    delivery_state TEXT,
    created_at     BIGINT  NOT NULL,
    sent_at        BIGINT  NOT NULL
);
CREATE INDEX sms_sent_when ON sms_sent (campaign_id, sent_at);
CREATE INDEX sms_sent_message ON sms_sent (message_id);
CREATE INDEX sms_sent_plain ON sms_sent (campaign_id) WHERE import_id IS NULL;

CREATE TABLE sms_failed (
    id          INTEGER PRIMARY KEY,
    campaign_id BIGINT  NOT NULL,
    import_id   BIGINT,
    phone       TEXT    NOT NULL,
    content     TEXT    NOT NULL,
    params      TEXT    NOT NULL,
    segments    INTEGER,
    expires_at  BIGINT,
    class       TEXT    NOT NULL,
    code        TEXT,
    reason      TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    claim       BIGINT  NOT NULL,
    reference   TEXT,
    dedupe_key  TEXT,
    created_at  BIGINT  NOT NULL,
    failed_at   BIGINT  NOT NULL
);
CREATE INDEX sms_failed_class ON sms_failed (campaign_id, class);
CREATE INDEX sms_failed_plain ON sms_failed (campaign_id) WHERE import_id IS NULL;

CREATE TABLE sms_key (
    campaign_id BIGINT NOT NULL,
    dedupe_key  TEXT   NOT NULL,
    PRIMARY KEY (campaign_id, dedupe_key)
) WITHOUT ROWID;

CREATE TABLE worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    host            TEXT    NOT NULL,
    boot_id         TEXT    NOT NULL,
    pid_namespace   TEXT    NOT NULL,
    pid             BIGINT  NOT NULL,
    process_started BIGINT  NOT NULL,
    concurrency     INTEGER NOT NULL,
    started_at      BIGINT  NOT NULL,
    heartbeat_at    BIGINT  NOT NULL,
    lease_ms        BIGINT  NOT NULL,             -- the worker is dead if its heartbeat is older than this
    limits          TEXT    NOT NULL DEFAULT '{}' -- its rate limits by provider; the smallest applies to all workers
);

CREATE TABLE rate_limit (
    scope         TEXT PRIMARY KEY NOT NULL,     -- 'provider/NAME' or 'campaign/ID'
    next_us       BIGINT NOT NULL DEFAULT 0,     -- the earliest next start, in microseconds since the epoch
    cost_max      INTEGER NOT NULL DEFAULT 1,    -- the highest cost of a request since the last idle window
    buckets       TEXT   NOT NULL DEFAULT '{}',  -- usage of long windows, and the workers that take permits
    stopped_until BIGINT NOT NULL DEFAULT 0,     -- the pause that a provider asked for
    stop_reason   TEXT                           -- the provider's reason
);

CREATE TABLE suppression (
    phone      TEXT PRIMARY KEY NOT NULL,
    reason     TEXT,
    created_at BIGINT NOT NULL
) WITHOUT ROWID;
