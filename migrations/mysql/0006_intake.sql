-- Keys of messages that were posted over HTTP, so that a repeated request adds no message.
CREATE TABLE IF NOT EXISTS intake_key (
    scope       VARCHAR(100) NOT NULL,       -- 'campaign/ID' or 'token/NAME'
    request_key CHAR(64)     NOT NULL,       -- SHA-256 of the key
    fingerprint CHAR(64)     NOT NULL,       -- SHA-256 of what was posted
    sms_id      BIGINT       NOT NULL,
    expires_at  BIGINT       NOT NULL,
    PRIMARY KEY (scope, request_key),
    KEY intake_key_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What people changed with `smsq serve`, and what workers paused or stopped.
CREATE TABLE IF NOT EXISTS audit (
    id       BIGINT       AUTO_INCREMENT PRIMARY KEY,
    at       BIGINT       NOT NULL,
    who      VARCHAR(255) NOT NULL,          -- a token, the user of a command, or 'worker'
    what     VARCHAR(255) NOT NULL,
    campaign TEXT,
    detail   TEXT         NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Attempts that were not accepted, at most 20 of each message.
CREATE TABLE IF NOT EXISTS attempt (
    sms_id   BIGINT       NOT NULL,
    slot     INTEGER      NOT NULL,          -- claim modulo 20: a later attempt replaces an old one
    claim    BIGINT       NOT NULL,
    at       BIGINT       NOT NULL,
    provider VARCHAR(255) NOT NULL,          -- empty: the worker that tried it is gone
    outcome  VARCHAR(255) NOT NULL,          -- retry, throttled, failed, unknown
    class    VARCHAR(255) NOT NULL,
    code     TEXT,
    reason   TEXT         NOT NULL,
    PRIMARY KEY (sms_id, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
