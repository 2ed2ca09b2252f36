-- '09:00-20:00 mon-fri Asia/Shanghai', or '' for any time.
ALTER TABLE campaign ADD COLUMN send_window TEXT NOT NULL DEFAULT '';

-- Requests that may have reached a phone, for caps per recipient.
CREATE TABLE recipient_start (
    sms_id   BIGINT NOT NULL,
    claim    BIGINT NOT NULL,
    phone    TEXT   NOT NULL,
    ended_at BIGINT,           -- the request started before this; NULL: it may still start
    PRIMARY KEY (sms_id, claim)
);
CREATE INDEX recipient_start_phone ON recipient_start (phone);
CREATE INDEX recipient_start_ended ON recipient_start (ended_at);
