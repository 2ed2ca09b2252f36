-- How many messages of a campaign went to another provider, because theirs was unavailable. A worker adds a row when it
-- moves the first of them.
CREATE TABLE failover (
    campaign_id BIGINT  NOT NULL,
    provider    TEXT    NOT NULL,
    fallback    TEXT    NOT NULL,
    since       BIGINT  NOT NULL, -- when the provider became unavailable
    last_at     BIGINT  NOT NULL, -- when the last message was moved
    reason      TEXT    NOT NULL,
    messages    BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, provider, fallback, since)
);
