-- Campaigns that are imported from a query again and again.
CREATE TABLE IF NOT EXISTS schedule (
    id           BIGINT  AUTO_INCREMENT PRIMARY KEY,
    name         VARCHAR(255)   NOT NULL UNIQUE,
    cron         VARCHAR(255)   NOT NULL,
    timezone     VARCHAR(255)   NOT NULL,
    source       TEXT   NOT NULL,           -- a URL without a password, or the name of a source
    query        MEDIUMTEXT   NOT NULL,
    unique_by    VARCHAR(255)   NOT NULL,           -- the key: one message per value and period
    per          VARCHAR(255)   NOT NULL,           -- the period: day, week, month or run
    options      MEDIUMTEXT   NOT NULL,           -- the text and how messages are made, a JSON object
    catch_up     BOOLEAN NOT NULL,           -- fires that were missed are made up for, one after the other
    is_paused    BOOLEAN NOT NULL DEFAULT FALSE,
    fire         VARCHAR(255)   NOT NULL,           -- the local time of the run that is next or in progress
    period       VARCHAR(255)   NOT NULL,           -- that it belongs to
    next_at      BIGINT  NOT NULL,           -- when that run is due, or due again
    attempts     INT NOT NULL DEFAULT 0,   -- of that run, which failed
    holder       BIGINT  NOT NULL DEFAULT 0, -- the process that runs it
    leased_until BIGINT  NOT NULL DEFAULT 0,
    created_at   BIGINT  NOT NULL,
    created_by   VARCHAR(255)   NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Runs of schedules, and spans of fires that were missed.
CREATE TABLE IF NOT EXISTS schedule_run (
    id          BIGINT  AUTO_INCREMENT PRIMARY KEY,
    schedule_id BIGINT  NOT NULL,
    fire        VARCHAR(255)   NOT NULL,            -- local time
    period      VARCHAR(255)   NOT NULL,
    campaign    VARCHAR(255)   NOT NULL,
    keys_until  BIGINT  NOT NULL,            -- before then no purge forgets who got a message of the campaign
    state       INT NOT NULL,              -- 0 in progress, 1 done, 2 missed
    started_at  BIGINT  NOT NULL,
    finished_at BIGINT,
    row_count   BIGINT  NOT NULL DEFAULT 0,
    accepted    BIGINT  NOT NULL DEFAULT 0,
    suppressed  BIGINT  NOT NULL DEFAULT 0,
    rejected    BIGINT  NOT NULL DEFAULT 0,
    reasons     TEXT,                       -- of the rejected rows, with their counts
    error       TEXT,                       -- of the last attempt, or why it was missed
    UNIQUE (schedule_id, fire),
    INDEX schedule_run_campaign (campaign)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
