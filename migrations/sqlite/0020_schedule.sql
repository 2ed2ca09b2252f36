-- Campaigns that are imported from a query again and again.
CREATE TABLE schedule (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT   NOT NULL UNIQUE,
    cron         TEXT   NOT NULL,
    timezone     TEXT   NOT NULL,
    source       TEXT   NOT NULL,           -- a URL without a password, or the name of a source
    query        TEXT   NOT NULL,
    unique_by    TEXT   NOT NULL,           -- the key: one message per value and period
    per          TEXT   NOT NULL,           -- the period: day, week, month or run
    options      TEXT   NOT NULL,           -- the text and how messages are made, a JSON object
    catch_up     BOOLEAN NOT NULL,           -- fires that were missed are made up for, one after the other
    is_paused    BOOLEAN NOT NULL DEFAULT FALSE,
    fire         TEXT   NOT NULL,           -- the local time of the run that is next or in progress
    period       TEXT   NOT NULL,           -- that it belongs to
    next_at      BIGINT  NOT NULL,           -- when that run is due, or due again
    attempts     INTEGER NOT NULL DEFAULT 0,   -- of that run, which failed
    holder       BIGINT  NOT NULL DEFAULT 0, -- the process that runs it
    leased_until BIGINT  NOT NULL DEFAULT 0,
    created_at   BIGINT  NOT NULL,
    created_by   TEXT   NOT NULL
);

-- Runs of schedules, and spans of fires that were missed.
CREATE TABLE schedule_run (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id BIGINT  NOT NULL,
    fire        TEXT   NOT NULL,            -- local time
    period      TEXT   NOT NULL,
    campaign    TEXT   NOT NULL,
    keys_until  BIGINT  NOT NULL,            -- before then no purge forgets who got a message of the campaign
    state       INTEGER NOT NULL,              -- 0 in progress, 1 done, 2 missed
    started_at  BIGINT  NOT NULL,
    finished_at BIGINT,
    row_count   BIGINT  NOT NULL DEFAULT 0,
    accepted    BIGINT  NOT NULL DEFAULT 0,
    suppressed  BIGINT  NOT NULL DEFAULT 0,
    rejected    BIGINT  NOT NULL DEFAULT 0,
    reasons     TEXT,                       -- of the rejected rows, with their counts
    error       TEXT,                       -- of the last attempt, or why it was missed
    UNIQUE (schedule_id, fire)
);

CREATE INDEX schedule_run_campaign ON schedule_run (campaign);
