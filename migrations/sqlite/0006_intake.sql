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

-- What people changed with `smsq serve`.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       BIGINT  NOT NULL,
    who      TEXT    NOT NULL,               -- the name of the token
    what     TEXT    NOT NULL,
    campaign TEXT,
    detail   TEXT    NOT NULL
);
