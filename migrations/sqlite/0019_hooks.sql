-- Hooks that have or had events: which process delivers them, and whether they are off.
CREATE TABLE hook (
    name          TEXT PRIMARY KEY NOT NULL,
    holder        BIGINT NOT NULL DEFAULT 0,  -- a random number of the process that delivers
    leased_until  BIGINT NOT NULL DEFAULT 0,
    off_at        BIGINT,                     -- since when nothing is delivered; NULL: it is on
    off_reason    TEXT,
    failing_since BIGINT,                     -- the first failure since the last success
    last_error    TEXT,
    delivered     BIGINT NOT NULL DEFAULT 0,
    skipped       BIGINT NOT NULL DEFAULT 0   -- events that were not stored, or deleted before they were delivered
) WITHOUT ROWID;

-- Events for hooks. `state`: 0 waiting, 1 delivered, 2 given up. `at`: when it is delivered next, or when its state
-- ended. `phone`: the person whose data the body has.
CREATE TABLE hook_event (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    hook       TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    phone      TEXT,
    created_at BIGINT  NOT NULL,
    state      INTEGER NOT NULL DEFAULT 0,
    at         BIGINT  NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    last_error TEXT
);
CREATE INDEX hook_event_state ON hook_event (hook, state, at);

-- Campaigns that are not done, for events about them. `due_since`: since when its messages should be accepted;
-- `stuck_at`: when an event said that none is.
CREATE TABLE campaign_watch (
    campaign_id BIGINT PRIMARY KEY NOT NULL,
    opened_at   BIGINT NOT NULL,
    due_since   BIGINT,
    stuck_at    BIGINT
) WITHOUT ROWID;

-- Messages that recipients sent. `reply_key` tells those of a provider apart: the provider's id, if it has one.
CREATE TABLE reply (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    provider    TEXT   NOT NULL,
    reply_key   TEXT   NOT NULL,
    phone       TEXT   NOT NULL,  -- E.164 with `+`, or as the provider writes it
    sender      TEXT,             -- the number that it was sent to
    content     TEXT   NOT NULL,
    campaign_id BIGINT,           -- the last campaign that has the phone
    received_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX reply_key ON reply (provider, reply_key);
CREATE INDEX reply_received ON reply (received_at);
CREATE INDEX reply_campaign ON reply (campaign_id);
