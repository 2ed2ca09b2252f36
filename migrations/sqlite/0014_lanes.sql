-- The part of the campaign's queue that a message waits in, see table `lane`; 0: it is not divided.
ALTER TABLE sms ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;
DROP INDEX sms_due;
CREATE INDEX sms_due ON sms (campaign_id, state, lane, due_at);

-- The parts of the queues of campaigns: who sends their messages.
CREATE TABLE lane (
    campaign_id BIGINT  NOT NULL,
    lane        INTEGER NOT NULL,  -- from 1
    provider    TEXT    NOT NULL,
    sender      TEXT    NOT NULL,
    PRIMARY KEY (campaign_id, lane),
    UNIQUE (campaign_id, provider, sender)
);

-- The senders of providers that an operator switched off.
CREATE TABLE sender_off (
    provider    TEXT    NOT NULL,
    sender      TEXT    NOT NULL,
    since       BIGINT  NOT NULL,
    PRIMARY KEY (provider, sender)
);
