-- Counts of purged messages by campaign and import, so that no message seems lost.
CREATE TABLE purged (
    campaign_id BIGINT NOT NULL,
    import_id   BIGINT NOT NULL,             -- 0: inserted by another program
    sent        BIGINT NOT NULL DEFAULT 0,
    failed      BIGINT NOT NULL DEFAULT 0,
    unknown     BIGINT NOT NULL DEFAULT 0,
    cancelled   BIGINT NOT NULL DEFAULT 0,
    segments    BIGINT NOT NULL DEFAULT 0,   -- of the sent messages, as the next two columns
    attempts    BIGINT NOT NULL DEFAULT 0,
    repeated    BIGINT NOT NULL DEFAULT 0,   -- messages that the provider accepted more than once
    purged_at   BIGINT NOT NULL DEFAULT 0,   -- when messages were purged last
    PRIMARY KEY (campaign_id, import_id)
) WITHOUT ROWID;
