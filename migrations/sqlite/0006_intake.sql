-- Keys of messages that were posted over HTTP, so that a repeated request adds no message.
CREATE TABLE intake_key (
    scope       TEXT   NOT NULL,             -- 'campaign/ID' or 'token/NAME'
    request_key TEXT   NOT NULL,             -- SHA-256 of the key
    fingerprint TEXT   NOT NULL,             -- SHA-256 of what was posted
    sms_id      BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    PRIMARY KEY (scope, request_key)
) WITHOUT ROWID;
CREATE INDEX intake_key_expires ON intake_key (expires_at);

-- What people changed with `smsq serve`, and what workers paused or stopped.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       BIGINT  NOT NULL,
    who      TEXT    NOT NULL,               -- a token, the user of a command, or 'worker'
    what     TEXT    NOT NULL,
    campaign TEXT,
    detail   TEXT    NOT NULL
);

-- Attempts that were not accepted, at most 20 of each message.
CREATE TABLE attempt (
    sms_id   BIGINT  NOT NULL,
    slot     INTEGER NOT NULL,               -- claim modulo 20: a later attempt replaces an old one
    claim    BIGINT  NOT NULL,
    at       BIGINT  NOT NULL,
    provider TEXT    NOT NULL,               -- empty: the worker that tried it is gone
    outcome  TEXT    NOT NULL,               -- retry, throttled, failed, unknown
    class    TEXT    NOT NULL,
    code     TEXT,
    reason   TEXT    NOT NULL,
    PRIMARY KEY (sms_id, slot)
) WITHOUT ROWID;
