-- What has to be approved by a second person before it is sent: messages that came together, or a change of the
-- settings of a campaign. The messages of an approval wait in lane `-id` of their campaign.
CREATE TABLE approval (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id BIGINT  NOT NULL,
    -- 0: of the settings, so that all messages of the campaign wait; 1: of messages.
    has_lane    BOOLEAN NOT NULL,
    -- 0 not needed, 1 undecided, because messages are being added, 2 waiting, 3 granted, 4 granted and begun, 5 rejected,
    -- 6 ended without a decision.
    state       INTEGER NOT NULL,
    -- The hash of the list; '': other messages.
    hash        TEXT    NOT NULL DEFAULT '',
    -- How many messages were added.
    messages    BIGINT  NOT NULL DEFAULT 0,
    reason      TEXT    NOT NULL,
    -- When it was granted.
    decided_at  BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX approval_campaign ON approval (campaign_id, state);

-- Who added messages or changed settings: they cannot approve them.
CREATE TABLE approval_author (
    approval_id BIGINT NOT NULL,
    who         TEXT   NOT NULL,
    PRIMARY KEY (approval_id, who)
);

-- The strictest rules of section `[approval]` that any process has had.
CREATE TABLE approval_rule (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- `campaign.approval`: 0 nothing of it needed approval yet, 1 some of its messages wait, 2 new messages need approval,
-- 4 all its messages wait. `approval_reason`: what they wait for.
ALTER TABLE campaign ADD COLUMN approval_reason TEXT;
INSERT INTO approval (campaign_id, has_lane, state, reason)
SELECT id, FALSE, 2, coalesce(state_reason, 'it waited before an update of smsq') FROM campaign WHERE approval = 1;
-- Every insert into a table with AUTOINCREMENT looks for it in this list, from its begin: that of messages is the first.
UPDATE sqlite_sequence SET rowid = -1 WHERE name = 'sms';
INSERT INTO sqlite_sequence (rowid, name, seq)
SELECT -1, 'sms', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'sms');
INSERT INTO approval_author (approval_id, who)
WITH RECURSIVE author (approval_id, who, rest) AS (
    SELECT approval.id, '', campaign.wanted_by || char(10)
    FROM approval JOIN campaign ON campaign.id = approval.campaign_id
    UNION ALL
    SELECT approval_id, substr(rest, 1, instr(rest, char(10)) - 1), substr(rest, instr(rest, char(10)) + 1)
    FROM author WHERE rest <> ''
)
SELECT DISTINCT approval_id, who FROM author WHERE who <> '';
UPDATE campaign SET approval_reason = coalesce(state_reason, 'it waits for approval') WHERE approval = 1;
UPDATE campaign SET state_reason = NULL WHERE approval = 1 AND state = 0;
UPDATE campaign SET approval = CASE approval WHEN 1 THEN 4 ELSE 2 END WHERE approval <> 0;
ALTER TABLE campaign DROP COLUMN approved_id;
ALTER TABLE campaign DROP COLUMN approved_at;
ALTER TABLE campaign DROP COLUMN wanted_by;
