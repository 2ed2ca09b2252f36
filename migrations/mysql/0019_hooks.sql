-- Hooks that have or had events: which process delivers them, and whether they are off.
CREATE TABLE IF NOT EXISTS hook (
    name          VARCHAR(64) PRIMARY KEY,
    holder        BIGINT NOT NULL DEFAULT 0,  -- a random number of the process that delivers
    leased_until  BIGINT NOT NULL DEFAULT 0,
    off_at        BIGINT,                     -- since when nothing is delivered; NULL: it is on
    off_reason    TEXT,
    failing_since BIGINT,                     -- the first failure since the last success
    last_error    TEXT,
    delivered     BIGINT NOT NULL DEFAULT 0,
    skipped       BIGINT NOT NULL DEFAULT 0   -- events that were not stored, or deleted before they were delivered
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Events for hooks. `state`: 0 waiting, 1 delivered, 2 given up. `at`: when it is delivered next, or when its state
-- ended. `phone`: the person whose data the body has.
CREATE TABLE IF NOT EXISTS hook_event (
    id         BIGINT      AUTO_INCREMENT PRIMARY KEY,
    hook       VARCHAR(64) NOT NULL,
    event_id   VARCHAR(64) NOT NULL,
    kind       VARCHAR(64) NOT NULL,
    body       MEDIUMTEXT  NOT NULL,
    phone      VARCHAR(255),
    created_at BIGINT      NOT NULL,
    state      INT         NOT NULL DEFAULT 0,
    at         BIGINT      NOT NULL,
    attempts   INT         NOT NULL DEFAULT 0,
    last_error TEXT,
    KEY hook_event_state (hook, state, at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Campaigns that are not done, for events about them. `due_since`: since when its messages should be accepted;
-- `stuck_at`: when an event said that none is.
CREATE TABLE IF NOT EXISTS campaign_watch (
    campaign_id BIGINT PRIMARY KEY,
    opened_at   BIGINT NOT NULL,
    due_since   BIGINT,
    stuck_at    BIGINT
) ENGINE = InnoDB;

-- Messages that recipients sent. `reply_key` tells those of a provider apart: the provider's id, if it has one.
CREATE TABLE IF NOT EXISTS reply (
    id          BIGINT       AUTO_INCREMENT PRIMARY KEY,
    provider    VARCHAR(255) NOT NULL,
    reply_key   VARCHAR(255) NOT NULL,
    phone       VARCHAR(255) NOT NULL,  -- E.164 with `+`, or as the provider writes it
    sender      VARCHAR(255),           -- the number that it was sent to
    content     MEDIUMTEXT   NOT NULL,
    campaign_id BIGINT,                 -- the last campaign that has the phone
    received_at BIGINT       NOT NULL,
    UNIQUE KEY reply_key (provider, reply_key),
    KEY reply_received (received_at),
    KEY reply_campaign (campaign_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
