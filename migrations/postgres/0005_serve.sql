-- What a worker does now, as a JSON object that it writes every two seconds; NULL: nothing yet.
ALTER TABLE worker ADD COLUMN activity TEXT;

-- What happened to messages, in spans of ten seconds.
CREATE TABLE activity (
    at          BIGINT NOT NULL,             -- when the span begins
    campaign_id BIGINT NOT NULL,
    provider    TEXT   NOT NULL,
    sent        BIGINT NOT NULL,
    failed      BIGINT NOT NULL,
    unknown     BIGINT NOT NULL,
    throttled   BIGINT NOT NULL,             -- attempts that were too fast for the provider
    unavailable BIGINT NOT NULL,             -- attempts that certainly did not reach it
    PRIMARY KEY (at, campaign_id, provider)
);
