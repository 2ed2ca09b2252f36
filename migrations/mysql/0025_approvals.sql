-- What has to be approved by a second person before it is sent: messages that came together, or a change of the
-- settings of a campaign. The messages of an approval wait in lane `-id` of their campaign.
CREATE TABLE IF NOT EXISTS approval (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    campaign_id BIGINT       NOT NULL,
    -- 0: of the settings, so that all messages of the campaign wait; 1: of messages.
    has_lane    BOOLEAN      NOT NULL,
    -- 0 not needed, 1 undecided, because messages are being added, 2 waiting, 3 granted, 4 granted and begun, 5 rejected,
    -- 6 ended without a decision.
    state       INT          NOT NULL,
    -- The hash of the list; '': other messages.
    hash        VARCHAR(255) NOT NULL DEFAULT '',
    -- How many messages were added.
    messages    BIGINT       NOT NULL DEFAULT 0,
    reason      TEXT         NOT NULL,
    -- When it was granted.
    decided_at  BIGINT       NOT NULL DEFAULT 0,
    INDEX approval_campaign (campaign_id, state)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who added messages or changed settings: they cannot approve them.
CREATE TABLE IF NOT EXISTS approval_author (
    approval_id BIGINT       NOT NULL,
    who         VARCHAR(255) NOT NULL,
    PRIMARY KEY (approval_id, who)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The strictest rules of section `[approval]` that any process has had.
CREATE TABLE IF NOT EXISTS approval_rule (
    name  VARCHAR(64)  PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- `campaign.approval`: 0 nothing of it needed approval yet, 1 some of its messages wait, 2 new messages need approval,
-- 4 all its messages wait. `approval_reason`: what they wait for.
SET @smsq_is_new = (SELECT count(*) FROM information_schema.columns
    WHERE table_schema = database() AND table_name = 'campaign' AND column_name = 'approval_reason') = 0;
SET @smsq_step = IF(@smsq_is_new, 'ALTER TABLE campaign ADD COLUMN approval_reason TEXT', 'DO 0');
PREPARE smsq_step FROM @smsq_step;
EXECUTE smsq_step;
SET @smsq_is_old = (SELECT count(*) FROM information_schema.columns
    WHERE table_schema = database() AND table_name = 'campaign' AND column_name = 'wanted_by') > 0;
SET @smsq_step = IF(@smsq_is_old,
    'INSERT INTO approval (campaign_id, has_lane, state, reason)
     SELECT id, FALSE, 2, coalesce(state_reason, ''it waited before an update of smsq'') FROM campaign
     WHERE approval = 1 AND id NOT IN (SELECT campaign_id FROM approval)',
    'DO 0');
PREPARE smsq_step FROM @smsq_step;
EXECUTE smsq_step;
SET @smsq_step = IF(@smsq_is_old,
    'INSERT IGNORE INTO approval_author (approval_id, who)
     WITH RECURSIVE author (approval_id, who, rest) AS (
         SELECT approval.id, CAST('''' AS CHAR(255)) COLLATE utf8mb4_bin, CAST(concat(campaign.wanted_by, char(10 USING utf8mb4)) AS CHAR(1200)) COLLATE utf8mb4_bin
         FROM approval JOIN campaign ON campaign.id = approval.campaign_id
         UNION ALL
         SELECT approval_id, substring_index(rest, char(10 USING utf8mb4), 1), substr(rest, locate(char(10 USING utf8mb4), rest) + 1)
         FROM author WHERE rest <> ''''
     )
     SELECT DISTINCT approval_id, who FROM author WHERE who <> ''''',
    'DO 0');
PREPARE smsq_step FROM @smsq_step;
EXECUTE smsq_step;
SET @smsq_step = IF(@smsq_is_old,
    'UPDATE campaign SET approval_reason = IF(approval = 1, coalesce(state_reason, ''it waits for approval''), approval_reason),
         state_reason = IF(approval = 1 AND state = 0, NULL, state_reason),
         approval = CASE approval WHEN 1 THEN 4 WHEN 4 THEN 4 ELSE 2 END
     WHERE approval <> 0',
    'DO 0');
PREPARE smsq_step FROM @smsq_step;
EXECUTE smsq_step;
SET @smsq_step = IF(@smsq_is_old,
    'ALTER TABLE campaign DROP COLUMN approved_id, DROP COLUMN approved_at, DROP COLUMN wanted_by',
    'DO 0');
PREPARE smsq_step FROM @smsq_step;
EXECUTE smsq_step;
DEALLOCATE PREPARE smsq_step;
