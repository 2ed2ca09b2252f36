-- How many messages of a campaign went to another provider, because theirs was unavailable. A worker adds a row when it
-- moves the first of them.
CREATE TABLE IF NOT EXISTS failover (
    campaign_id BIGINT       NOT NULL,
    provider    VARCHAR(255) NOT NULL,
    fallback    VARCHAR(255) NOT NULL,
    since       BIGINT       NOT NULL, -- when the provider became unavailable
    last_at     BIGINT       NOT NULL, -- when the last message was moved
    reason      TEXT         NOT NULL,
    messages    BIGINT       NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, provider, fallback, since)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
