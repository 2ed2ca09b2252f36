-- Instants are milliseconds since the Unix epoch, by the server's clock. Each statement can be repeated, because MySQL
-- commits it at once and a migration may be interrupted. Keys are VARBINARY, because comparisons of text ignore blanks
-- at its end.

CREATE TABLE IF NOT EXISTS campaign (
    id           BIGINT         AUTO_INCREMENT PRIMARY KEY,
    name         VARBINARY(400) NOT NULL UNIQUE,
    provider     VARCHAR(255),                   -- NULL: the configuration's default_provider
    sender       TEXT,
    rate         VARCHAR(1024)  NOT NULL DEFAULT '', -- '100/s,20000/day', or '' without a limit
    priority     INT            NOT NULL DEFAULT 0,  -- higher goes first
    state        INT            NOT NULL DEFAULT 0,  -- 0 active, 1 paused, 2 stopped, 3 cancelled
    state_reason TEXT,
    unique_by    TEXT,                           -- the columns of its dedupe keys
    created_at   BIGINT         NOT NULL
                 DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO campaign (id, name) VALUES (1, 'default');

CREATE TABLE IF NOT EXISTS import (
    id           BIGINT      AUTO_INCREMENT PRIMARY KEY,
    campaign_id  BIGINT      NOT NULL,
    file         TEXT        NOT NULL,
    hash         VARCHAR(64) NOT NULL,
    last_line    BIGINT      NOT NULL DEFAULT 0,
    row_count    BIGINT      NOT NULL DEFAULT 0,
    accepted     BIGINT      NOT NULL DEFAULT 0,
    duplicates   BIGINT      NOT NULL DEFAULT 0,
    suppressed   BIGINT      NOT NULL DEFAULT 0,
    rejected     BIGINT      NOT NULL DEFAULT 0,
    replaced     BIGINT      NOT NULL DEFAULT 0, -- accepted messages that failed and were replaced by a later import
    template     MEDIUMTEXT,                     -- the text of its messages, with placeholders
    sample       MEDIUMTEXT,                     -- without a template: the text of its first message
    gsm7         BIGINT      NOT NULL DEFAULT 0, -- accepted messages in this alphabet
    ucs2         BIGINT      NOT NULL DEFAULT 0,
    created_at   BIGINT      NOT NULL,
    finished_at  BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The index ends with the import, so that plain rows are counted with the index only.
CREATE TABLE IF NOT EXISTS sms (
    id              BIGINT       AUTO_INCREMENT PRIMARY KEY,
    campaign_id     BIGINT       NOT NULL DEFAULT 1,
    import_id       BIGINT,                      -- NULL: inserted by another program
    phone           VARCHAR(255) NOT NULL,
    content         MEDIUMTEXT   NOT NULL,
    params          MEDIUMTEXT   NOT NULL DEFAULT ('{}'),
    segments        INT,
    state           INT          NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- 0 ready, 1 sending, 2 unknown
    in_doubt        BOOLEAN      NOT NULL DEFAULT FALSE,
    due_at          BIGINT       NOT NULL
                    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    expires_at      BIGINT,
    attempts        INT          NOT NULL DEFAULT 0,
    worker_id       BIGINT,
    claim           BIGINT       NOT NULL DEFAULT 0,
    claimed_at      BIGINT,
    unknown_at      BIGINT,                      -- no attempt that may have been accepted started after this
    reference       VARCHAR(255),
    dedupe_key      VARBINARY(1024),
    last_class      VARCHAR(255),
    last_code       TEXT,
    last_reason     TEXT,
    late_accepted   INT          NOT NULL DEFAULT 0, -- older claims accepted while this one was sending
    late_message_id TEXT,
    late_claims     TEXT,                        -- the numbers of those claims, separated by commas
    refunded_claim  BIGINT,                      -- the claim whose attempt was refunded
    created_at      BIGINT       NOT NULL
                    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    KEY sms_due (campaign_id, state, due_at, id, import_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sms_sent (
    id             BIGINT       PRIMARY KEY,
    campaign_id    BIGINT       NOT NULL,
    import_id      BIGINT,
    phone          VARCHAR(255) NOT NULL,
    reference      VARCHAR(255),
    provider       VARCHAR(255) NOT NULL,
    message_id     TEXT,
    segments       INT,
    price          TEXT,
    attempts       INT          NOT NULL,
    accepted       INT          NOT NULL DEFAULT 1, -- how often the provider accepted it
    accepted_claims TEXT,                       -- by which claims, separated by commas; NULL: by `claim`
    claim          BIGINT       NOT NULL,
    delivery_state TEXT,
    created_at     BIGINT       NOT NULL,
    sent_at        BIGINT       NOT NULL,
    KEY sms_sent_when (campaign_id, sent_at, import_id),
    KEY sms_sent_message (message_id(64))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sms_failed (
    id          BIGINT       PRIMARY KEY,
    campaign_id BIGINT       NOT NULL,
    import_id   BIGINT,
    phone       VARCHAR(255) NOT NULL,
    content     MEDIUMTEXT   NOT NULL,
    params      MEDIUMTEXT   NOT NULL,
    segments    INT,
    expires_at  BIGINT,
    class       VARCHAR(255) NOT NULL,
    code        TEXT,
    reason      TEXT         NOT NULL,
    attempts    INT          NOT NULL,
    claim       BIGINT       NOT NULL,
    reference   VARCHAR(255),
    dedupe_key  VARBINARY(1024),
    created_at  BIGINT       NOT NULL,
    failed_at   BIGINT       NOT NULL,
    KEY sms_failed_class (campaign_id, class, import_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sms_key (
    campaign_id BIGINT          NOT NULL,
    dedupe_key  VARBINARY(1024) NOT NULL,
    PRIMARY KEY (campaign_id, dedupe_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS worker (
    id              BIGINT       AUTO_INCREMENT PRIMARY KEY,
    host            VARCHAR(255) NOT NULL,
    boot_id         VARCHAR(255) NOT NULL,
    pid_namespace   VARCHAR(255) NOT NULL,
    pid             BIGINT       NOT NULL,
    process_started BIGINT       NOT NULL,
    concurrency     INT          NOT NULL,
    started_at      BIGINT       NOT NULL,
    heartbeat_at    BIGINT       NOT NULL,
    lease_ms        BIGINT       NOT NULL,               -- the worker is dead if its heartbeat is older than this
    limits          TEXT         NOT NULL DEFAULT ('{}') -- its rate limits by provider; the smallest applies to all workers
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS rate_limit (
    scope         VARCHAR(255) PRIMARY KEY,         -- 'provider/NAME' or 'campaign/ID'
    next_us       BIGINT       NOT NULL DEFAULT 0,  -- the earliest next start, in microseconds since the epoch
    cost_max      INT          NOT NULL DEFAULT 1,  -- the highest cost of a request since the last idle window
    buckets       TEXT         NOT NULL DEFAULT ('{}'), -- usage of long windows, and the workers that take permits
    stopped_until BIGINT       NOT NULL DEFAULT 0,  -- the pause that a provider asked for
    stop_reason   TEXT                              -- the provider's reason
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- The row that the test of SKIP LOCKED locks.
INSERT IGNORE INTO rate_limit (scope) VALUES ('probe');

CREATE TABLE IF NOT EXISTS suppression (
    phone      VARCHAR(255) PRIMARY KEY,
    reason     TEXT,
    created_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
