-- The statements that the store makes on SQLite in the story of `statements.rs`, and where they differ, as PostgreSQL and
-- MySQL have them. `…` is a list of parameters, or all rows of an INSERT. PostgreSQL always has "name" for `name`, $1 for ?,
-- `= ANY($1)` for `IN (…)` and `!= ALL($1)` for `NOT IN (…)`.

DELETE FROM `activity` WHERE (`activity`.`at` < ?);

DELETE FROM `approval_author` WHERE (`approval_author`.`approval_id` IN (…));

DELETE FROM `approval_rule`;

DELETE FROM `approval` WHERE (`approval`.`id` IN (…));

DELETE FROM `attempt` WHERE (`attempt`.`sms_id` IN (…));

DELETE FROM `campaign_watch` WHERE (`campaign_watch`.`campaign_id` = ?);

DELETE FROM `campaign` WHERE (`campaign`.`id` = ?);

DELETE FROM `dead` WHERE (`dead`.`phone` IN (SELECT `sms`.`phone` FROM `sms` WHERE (`sms`.`id` IN (…))));

DELETE FROM `dead` WHERE (`dead`.`phone` IN (…));

DELETE FROM `failover` WHERE (`failover`.`campaign_id` = ?);

DELETE FROM `hook_event` WHERE (`hook_event`.`id` IN (…));

DELETE FROM `intake_key` WHERE (((`intake_key`.`scope` = ?) AND (`intake_key`.`request_key` IN (…))) AND (`intake_key`.`expires_at` < ?));

DELETE FROM `intake_key` WHERE (`intake_key`.`scope` = ?);

DELETE FROM `lane` WHERE (`lane`.`campaign_id` = ?);

DELETE FROM `purged` WHERE (`purged`.`campaign_id` = ?);

DELETE FROM `rate_limit` WHERE (`rate_limit`.`scope` = ?);

DELETE FROM `rate_limit` WHERE (`rate_limit`.`scope` LIKE ?);

DELETE FROM `receipt` WHERE (1=0);
-- PostgreSQL: DELETE FROM "receipt" WHERE ("receipt"."sms_id" = ANY($1))

DELETE FROM `receipt` WHERE (`receipt`.`id` IN (…));

DELETE FROM `receipt` WHERE (`receipt`.`sms_id` IN (…));

DELETE FROM `recipient_start` WHERE ((`recipient_start`.`claim` = ?) AND (`recipient_start`.`sms_id` IN (…)));

DELETE FROM `recipient_start` WHERE ((`recipient_start`.`sms_id` = ?) AND (`recipient_start`.`claim` = ?));

DELETE FROM `recipient_start` WHERE (`recipient_start`.`ended_at` <= ?);

DELETE FROM `reclaimed_worker` WHERE (`reclaimed_worker`.`reclaimed_at` < ?);

DELETE FROM `reply` WHERE (`reply`.`id` IN (…));

DELETE FROM `schedule_run` WHERE (((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` < ?)) AND (`schedule_run`.`keys_until` <= ?));

DELETE FROM `schedule_run` WHERE ((1=1) AND (`schedule_run`.`keys_until` <= ?));
-- PostgreSQL: DELETE FROM "schedule_run" WHERE (("schedule_run"."schedule_id" != ALL($1)) AND ("schedule_run"."keys_until" <= $2))

DELETE FROM `schedule` WHERE (`schedule`.`id` = ?);

DELETE FROM `sender_off` WHERE ((`sender_off`.`provider` = ?) AND (`sender_off`.`sender` = ?));

DELETE FROM `sms_failed` WHERE (1=0);
-- PostgreSQL: DELETE FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1))

DELETE FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…));

DELETE FROM `sms_key` WHERE ((`sms_key`.`campaign_id` = ?) AND (`sms_key`.`dedupe_key` IN (…)));

DELETE FROM `sms_sent` WHERE (1=0);
-- PostgreSQL: DELETE FROM "sms_sent" WHERE ("sms_sent"."id" = ANY($1))

DELETE FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…));

DELETE FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (((`sms`.`claim` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`late_accepted` = ?)));

DELETE FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (((`sms`.`claim` = ?) AND (`sms`.`state` = 1)) AND (`sms`.`late_accepted` = ?)));

DELETE FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (((`sms`.`claim` = ?) AND (`sms`.`state` = 2)) AND (`sms`.`late_accepted` = ?)));

DELETE FROM `sms` WHERE (1=0);
-- PostgreSQL: DELETE FROM "sms" WHERE ("sms"."id" = ANY($1))

DELETE FROM `sms` WHERE (`sms`.`id` IN (…));

DELETE FROM `suppression` WHERE (`suppression`.`phone` IN (…));

DELETE FROM `worker` WHERE (((`worker`.`id` = ?) AND (`worker`.`heartbeat_at` = ?)) AND (`worker`.`token` = ?));

DELETE FROM `worker` WHERE ((`worker`.`id` = ?) AND (`worker`.`token` = ?));

INSERT INTO `approval_rule` (`name`, `value`) VALUES (…);

INSERT INTO `approval` (`campaign_id`, `has_lane`, `state`, `hash`, `reason`) VALUES (…);

INSERT INTO `audit` (`at`, `who`, `what`, `campaign`, `detail`) VALUES (…);
-- PostgreSQL: INSERT INTO "audit" ("at", "who", "what", "campaign", "detail") VALUES (…) RETURNING "id"

INSERT INTO `campaign` (`name`, `provider`, `sender`, `rate`, `priority`, `unique_by`, `send_window`, `budget`, `created_at`) VALUES (…);

INSERT INTO `hook_event` (`hook`, `event_id`, `kind`, `body`, `phone`, `created_at`, `at`) VALUES (…);

INSERT INTO `import` (`campaign_id`, `file`, `hash`, `posted_by`, `created_at`) VALUES (…);

INSERT INTO `recipient_start` (`sms_id`, `claim`, `phone`) VALUES (…);

INSERT INTO `sms_failed` (`id`, `campaign_id`, `import_id`, `phone`, `content`, `params`, `segments`, `expires_at`, `claim`, `reference`, `dedupe_key`, `created_at`, `doubt_since`, `claimed_provider`, `class`, `code`, `reason`, `attempts`, `failed_at`) SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`expires_at`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`doubt_since`, `sms`.`claimed_provider`, …, CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, ? FROM `sms` WHERE (`sms`.`id` IN (…));

INSERT INTO `sms_sent` (`id`, `campaign_id`, `import_id`, `phone`, `reference`, `provider`, `message_id`, `segments`, `price`, `attempts`, `accepted`, `accepted_claims`, `claim`, `delivery_state`, `content`, `params`, `dedupe_key`, `created_at`, `sent_at`) VALUES (…);

INSERT INTO `sms` (`campaign_id`, `import_id`, `phone`, `content`, `params`, `segments`, `lane`, `due_at`, `expires_at`, `dedupe_key`, `created_at`) VALUES (…);

INSERT INTO `sms` (`campaign_id`, `import_id`, `phone`, `content`, `params`, `segments`, `lane`, `due_at`, `expires_at`, `dedupe_key`, `created_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "sms" ("campaign_id", "import_id", "phone", "content", "params", "segments", "lane", "due_at", "expires_at", "dedupe_key", "created_at") VALUES (…) RETURNING "id"

INSERT INTO `sms` (`id`, `campaign_id`, `import_id`, `phone`, `content`, `params`, `segments`, `expires_at`, `claim`, `reference`, `dedupe_key`, `created_at`, `doubt_since`, `claimed_provider`, `last_class`, `last_code`, `last_reason`, `attempts`, `due_at`, `in_doubt`, `unknown_at`, `claimed_at`) SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`phone`, `sms_failed`.`content`, `sms_failed`.`params`, `sms_failed`.`segments`, `sms_failed`.`expires_at`, `sms_failed`.`claim`, `sms_failed`.`reference`, `sms_failed`.`dedupe_key`, `sms_failed`.`created_at`, `sms_failed`.`doubt_since`, `sms_failed`.`claimed_provider`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, `sms_failed`.`attempts`, ?, (`sms_failed`.`class` = ?), `sms_failed`.`failed_at`, `sms_failed`.`failed_at` FROM `sms_failed` WHERE (1=0);
-- PostgreSQL: INSERT INTO "sms" ("id", "campaign_id", "import_id", "phone", "content", "params", "segments", "expires_at", "claim", "reference", "dedupe_key", "created_at", "doubt_since", "claimed_provider", "last_class", "last_code", "last_reason", "attempts", "due_at", "in_doubt", "unknown_at", "claimed_at") SELECT "sms_failed"."id", "sms_failed"."campaign_id", "sms_failed"."import_id", "sms_failed"."phone", "sms_failed"."content", "sms_failed"."params", "sms_failed"."segments", "sms_failed"."expires_at", "sms_failed"."claim", "sms_failed"."reference", "sms_failed"."dedupe_key", "sms_failed"."created_at", "sms_failed"."doubt_since", "sms_failed"."claimed_provider", "sms_failed"."class", "sms_failed"."code", "sms_failed"."reason", "sms_failed"."attempts", $1, ("sms_failed"."class" = $2), "sms_failed"."failed_at", "sms_failed"."failed_at" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($3))

INSERT INTO `sms` (`id`, `campaign_id`, `import_id`, `phone`, `content`, `params`, `segments`, `expires_at`, `claim`, `reference`, `dedupe_key`, `created_at`, `doubt_since`, `claimed_provider`, `last_class`, `last_code`, `last_reason`, `attempts`, `due_at`, `in_doubt`, `unknown_at`, `claimed_at`) SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`phone`, `sms_failed`.`content`, `sms_failed`.`params`, `sms_failed`.`segments`, `sms_failed`.`expires_at`, `sms_failed`.`claim`, `sms_failed`.`reference`, `sms_failed`.`dedupe_key`, `sms_failed`.`created_at`, `sms_failed`.`doubt_since`, `sms_failed`.`claimed_provider`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, `sms_failed`.`attempts`, ?, (`sms_failed`.`class` = ?), `sms_failed`.`failed_at`, `sms_failed`.`failed_at` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…));

INSERT INTO `worker` (`host`, `boot_id`, `pid_namespace`, `pid`, `process_started`, `concurrency`, `lease_ms`, `machine_id`, `token`, `started_at`, `heartbeat_at`) VALUES (…);

INSERT OR IGNORE INTO `__diesel_schema_migrations` (`version`) VALUES (…);
-- PostgreSQL: INSERT INTO "__diesel_schema_migrations" ("version") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `__diesel_schema_migrations` (`version`) VALUES (…)

INSERT OR IGNORE INTO `activity` (`at`, `campaign_id`, `provider`, `sent`, `failed`, `unknown`, `throttled`, `unavailable`) VALUES (…);
-- PostgreSQL: INSERT INTO "activity" ("at", "campaign_id", "provider", "sent", "failed", "unknown", "throttled", "unavailable") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `activity` (`at`, `campaign_id`, `provider`, `sent`, `failed`, `unknown`, `throttled`, `unavailable`) VALUES (…)

INSERT OR IGNORE INTO `approval_author` (`approval_id`, `who`) VALUES (…);
-- PostgreSQL: INSERT INTO "approval_author" ("approval_id", "who") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `approval_author` (`approval_id`, `who`) VALUES (…)

INSERT OR IGNORE INTO `campaign_watch` (`campaign_id`, `opened_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "campaign_watch" ("campaign_id", "opened_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `campaign_watch` (`campaign_id`, `opened_at`) VALUES (…)

INSERT OR IGNORE INTO `database_mode` (`id`, `is_practice`) VALUES (…);
-- PostgreSQL: INSERT INTO "database_mode" ("id", "is_practice") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `database_mode` (`id`, `is_practice`) VALUES (…)

INSERT OR IGNORE INTO `failover` (`campaign_id`, `provider`, `fallback`, `since`, `last_at`, `reason`) VALUES (…);
-- PostgreSQL: INSERT INTO "failover" ("campaign_id", "provider", "fallback", "since", "last_at", "reason") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `failover` (`campaign_id`, `provider`, `fallback`, `since`, `last_at`, `reason`) VALUES (…)

INSERT OR IGNORE INTO `hook` (`name`) VALUES (…);
-- PostgreSQL: INSERT INTO "hook" ("name") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `hook` (`name`) VALUES (…)

INSERT OR IGNORE INTO `intake_key` (`scope`, `request_key`, `fingerprint`, `sms_id`, `expires_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "intake_key" ("scope", "request_key", "fingerprint", "sms_id", "expires_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `intake_key` (`scope`, `request_key`, `fingerprint`, `sms_id`, `expires_at`) VALUES (…)

INSERT OR IGNORE INTO `lane` (`campaign_id`, `lane`, `provider`, `sender`) VALUES (…);
-- PostgreSQL: INSERT INTO "lane" ("campaign_id", "lane", "provider", "sender") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `lane` (`campaign_id`, `lane`, `provider`, `sender`) VALUES (…)

INSERT OR IGNORE INTO `purged` (`campaign_id`, `import_id`) VALUES (…);
-- PostgreSQL: INSERT INTO "purged" ("campaign_id", "import_id") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `purged` (`campaign_id`, `import_id`) VALUES (…)

INSERT OR IGNORE INTO `rate_limit` (`scope`) VALUES (…);
-- PostgreSQL: INSERT INTO "rate_limit" ("scope") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `rate_limit` (`scope`) VALUES (…)

INSERT OR IGNORE INTO `rate_limit` (`scope`, `counted_from`) VALUES (…);
-- PostgreSQL: INSERT INTO "rate_limit" ("scope", "counted_from") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `rate_limit` (`scope`, `counted_from`) VALUES (…)

INSERT OR IGNORE INTO `receipt_pull` (`provider`, `holder`, `leased_until`) VALUES (…);
-- PostgreSQL: INSERT INTO "receipt_pull" ("provider", "holder", "leased_until") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `receipt_pull` (`provider`, `holder`, `leased_until`) VALUES (…)

INSERT OR IGNORE INTO `receipt` (`provider`, `message_key`, `state`, `part`, `parts`, `reference`, `message_id`, `phone`, `class`, `code`, `reason`, `at`, `received_at`, `due_at`, `sms_id`, `is_dead_number`) VALUES (…);
-- PostgreSQL: INSERT INTO "receipt" ("provider", "message_key", "state", "part", "parts", "reference", "message_id", "phone", "class", "code", "reason", "at", "received_at", "due_at", "sms_id", "is_dead_number") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `receipt` (`provider`, `message_key`, `state`, `part`, `parts`, `reference`, `message_id`, `phone`, `class`, `code`, `reason`, `at`, `received_at`, `due_at`, `sms_id`, `is_dead_number`) VALUES (…)

INSERT OR IGNORE INTO `reclaimed_worker` (`token`, `reclaimed_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "reclaimed_worker" ("token", "reclaimed_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `reclaimed_worker` (`token`, `reclaimed_at`) VALUES (…)

INSERT OR IGNORE INTO `reply` (`provider`, `reply_key`, `phone`, `sender`, `content`, `campaign_id`, `received_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "reply" ("provider", "reply_key", "phone", "sender", "content", "campaign_id", "received_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `reply` (`provider`, `reply_key`, `phone`, `sender`, `content`, `campaign_id`, `received_at`) VALUES (…)

INSERT OR IGNORE INTO `schedule_run` (`schedule_id`, `fire`, `period`, `campaign`, `error`, `keys_until`, `state`, `started_at`, `finished_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "schedule_run" ("schedule_id", "fire", "period", "campaign", "error", "keys_until", "state", "started_at", "finished_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `schedule_run` (`schedule_id`, `fire`, `period`, `campaign`, `error`, `keys_until`, `state`, `started_at`, `finished_at`) VALUES (…)

INSERT OR IGNORE INTO `schedule_run` (`schedule_id`, `fire`, `period`, `campaign`, `keys_until`, `asked_until`, `state`, `started_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "schedule_run" ("schedule_id", "fire", "period", "campaign", "keys_until", "asked_until", "state", "started_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `schedule_run` (`schedule_id`, `fire`, `period`, `campaign`, `keys_until`, `asked_until`, `state`, `started_at`) VALUES (…)

INSERT OR IGNORE INTO `schedule` (`name`, `cron`, `timezone`, `source`, `query`, `unique_by`, `per`, `options`, `catch_up`, `fire`, `period`, `next_at`, `created_at`, `created_by`) VALUES (…);
-- PostgreSQL: INSERT INTO "schedule" ("name", "cron", "timezone", "source", "query", "unique_by", "per", "options", "catch_up", "fire", "period", "next_at", "created_at", "created_by") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `schedule` (`name`, `cron`, `timezone`, `source`, `query`, `unique_by`, `per`, `options`, `catch_up`, `fire`, `period`, `next_at`, `created_at`, `created_by`) VALUES (…)

INSERT OR IGNORE INTO `sender_off` (`provider`, `sender`, `since`) VALUES (…);
-- PostgreSQL: INSERT INTO "sender_off" ("provider", "sender", "since") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `sender_off` (`provider`, `sender`, `since`) VALUES (…)

INSERT OR IGNORE INTO `sms_key` (`campaign_id`, `dedupe_key`) VALUES (…);
-- PostgreSQL: INSERT INTO "sms_key" ("campaign_id", "dedupe_key") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `sms_key` (`campaign_id`, `dedupe_key`) VALUES (…)

INSERT OR IGNORE INTO `suppression` (`phone`, `reason`, `created_at`) VALUES (…);
-- PostgreSQL: INSERT INTO "suppression" ("phone", "reason", "created_at") VALUES (…) ON CONFLICT DO NOTHING
-- MySQL: INSERT IGNORE INTO `suppression` (`phone`, `reason`, `created_at`) VALUES (…)

REPLACE INTO `attempt` (`sms_id`, `slot`, `claim`, `at`, `provider`, `outcome`, `class`, `code`, `reason`, `reference`) VALUES (…);
-- PostgreSQL: INSERT INTO "attempt" ("sms_id", "slot", "claim", "at", "provider", "outcome", "class", "code", "reason", "reference") VALUES (…) ON CONFLICT ("sms_id", "slot") DO UPDATE SET "claim" = excluded."claim", "at" = excluded."at", "provider" = excluded."provider", "outcome" = excluded."outcome", "class" = excluded."class", "code" = excluded."code", "reason" = excluded."reason", "reference" = excluded."reference"

REPLACE INTO `dead` (`phone`, `code`, `provider`, `at`) VALUES (…);
-- PostgreSQL: INSERT INTO "dead" ("phone", "code", "provider", "at") VALUES (…) ON CONFLICT ("phone") DO UPDATE SET "code" = excluded."code", "provider" = excluded."provider", "at" = excluded."at"

SELECT 'sent' AS kind, provider AS provider, MIN(phone) AS phone, price AS price, COALESCE(segments, 1) * accepted AS amount, COUNT(*) AS messages FROM sms_sent WHERE campaign_id = 2 GROUP BY provider, CASE WHEN phone LIKE '+39%' OR phone LIKE '+44%' OR phone LIKE '+47%' OR phone LIKE '+61%' OR phone LIKE '+212%' OR phone LIKE '+262%' OR phone LIKE '+290%' OR phone LIKE '+358%' OR phone LIKE '+590%' OR phone LIKE '+599%' THEN substr(phone, 1, 9) ELSE substr(phone, 1, 5) END, price, COALESCE(segments, 1) * accepted UNION ALL SELECT 'sent', attempt.provider, MIN(phone), NULL, COALESCE(segments, 1), COUNT(*) FROM sms_sent JOIN attempt ON attempt.sms_id = sms_sent.id AND attempt.outcome = 'unknown' WHERE campaign_id = 2 AND attempt.claim <> sms_sent.claim AND (accepted_claims IS NULL OR CONCAT(',', accepted_claims, ',') NOT LIKE CONCAT('%,', attempt.claim, ',%')) GROUP BY attempt.provider, CASE WHEN phone LIKE '+39%' OR phone LIKE '+44%' OR phone LIKE '+47%' OR phone LIKE '+61%' OR phone LIKE '+212%' OR phone LIKE '+262%' OR phone LIKE '+290%' OR phone LIKE '+358%' OR phone LIKE '+590%' OR phone LIKE '+599%' THEN substr(phone, 1, 9) ELSE substr(phone, 1, 5) END, COALESCE(segments, 1) UNION ALL SELECT 'taken', NULL, NULL, NULL, reserved + reserved_earlier, COUNT(*) FROM sms WHERE campaign_id = 2 AND reserved_month LIKE '%/EUR' GROUP BY reserved + reserved_earlier UNION ALL SELECT 'counted', NULL, NULL, NULL, spent, 1 FROM rate_limit WHERE scope = 'budget/campaign/2/EUR';

SELECT (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE ((`purged`.`campaign_id` = ?) AND (`purged`.`import_id` = ?));

SELECT (SELECT count(*) FROM sqlite_master WHERE name IN ('__diesel_schema_migrations'));

SELECT (SELECT count(*) FROM sqlite_master WHERE name IN ('campaign', 'sms', 'sms_sent', 'sms_failed', 'import', 'worker', 'rate_limit'));

SELECT (`import`.`accepted` - `import`.`replaced`) FROM `import` WHERE (`import`.`campaign_id` = ?);

SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT `sms`.`campaign_id`, `sms`.`state`, COUNT(*) FROM `sms` WHERE `sms`.`campaign_id` = ? GROUP BY `sms`.`campaign_id`, `sms`.`state`) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` = ? GROUP BY `sms_sent`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`delivery_state` IS NOT NULL)) GROUP BY `sms_sent`.`campaign_id`, `sms_sent`.`delivery_state`)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`delivered` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`undelivered` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`expired` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`no_report` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`class` != ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`class` = ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `import`.`campaign_id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import` WHERE `import`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` = ? AND (`sms`.`import_id` IS NULL)) GROUP BY `sms`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`import_id` IS NULL)) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`import_id` IS NULL)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`sent` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`failed` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`unknown` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`cancelled` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE (`purged`.`campaign_id` = ? AND (`purged`.`import_id` = ?)));
-- PostgreSQL: ((((((((((((((((((SELECT "sms"."campaign_id", "sms"."state", COUNT(*) FROM "sms" WHERE "sms"."campaign_id" = $1 GROUP BY "sms"."campaign_id", "sms"."state") UNION ALL (SELECT "sms_sent"."campaign_id", $2, COUNT(*) FROM "sms_sent" WHERE "sms_sent"."campaign_id" = $3 GROUP BY "sms_sent"."campaign_id")) UNION ALL (SELECT "sms_sent"."campaign_id", CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM "sms_sent" WHERE ("sms_sent"."campaign_id" = $4 AND ("sms_sent"."delivery_state" IS NOT NULL)) GROUP BY "sms_sent"."campaign_id", "sms_sent"."delivery_state")) UNION ALL (SELECT "purged"."campaign_id", $5, "purged"."delivered" FROM "purged" WHERE "purged"."campaign_id" = $6)) UNION ALL (SELECT "purged"."campaign_id", $7, "purged"."undelivered" FROM "purged" WHERE "purged"."campaign_id" = $8)) UNION ALL (SELECT "purged"."campaign_id", $9, "purged"."expired" FROM "purged" WHERE "purged"."campaign_id" = $10)) UNION ALL (SELECT "purged"."campaign_id", $11, "purged"."no_report" FROM "purged" WHERE "purged"."campaign_id" = $12)) UNION ALL (SELECT "sms_failed"."campaign_id", $13, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" = $14 AND ("sms_failed"."class" != $15)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "sms_failed"."campaign_id", $16, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" = $17 AND ("sms_failed"."class" = $18)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "import"."campaign_id", $19, ("import"."accepted" - "import"."replaced") FROM "import" WHERE "import"."campaign_id" = $20)) UNION ALL (SELECT "sms"."campaign_id", $21, COUNT(*) FROM "sms" WHERE ("sms"."campaign_id" = $22 AND ("sms"."import_id" IS NULL)) GROUP BY "sms"."campaign_id")) UNION ALL (SELECT "sms_sent"."campaign_id", $23, COUNT(*) FROM "sms_sent" WHERE ("sms_sent"."campaign_id" = $24 AND ("sms_sent"."import_id" IS NULL)) GROUP BY "sms_sent"."campaign_id")) UNION ALL (SELECT "sms_failed"."campaign_id", $25, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" = $26 AND ("sms_failed"."import_id" IS NULL)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "purged"."campaign_id", $27, "purged"."sent" FROM "purged" WHERE "purged"."campaign_id" = $28)) UNION ALL (SELECT "purged"."campaign_id", $29, "purged"."failed" FROM "purged" WHERE "purged"."campaign_id" = $30)) UNION ALL (SELECT "purged"."campaign_id", $31, "purged"."unknown" FROM "purged" WHERE "purged"."campaign_id" = $32)) UNION ALL (SELECT "purged"."campaign_id", $33, "purged"."cancelled" FROM "purged" WHERE "purged"."campaign_id" = $34)) UNION ALL (SELECT "purged"."campaign_id", $35, ((("purged"."sent" + "purged"."failed") + "purged"."unknown") + "purged"."cancelled") FROM "purged" WHERE "purged"."campaign_id" = $36)) UNION ALL (SELECT "purged"."campaign_id", $37, ((("purged"."sent" + "purged"."failed") + "purged"."unknown") + "purged"."cancelled") FROM "purged" WHERE ("purged"."campaign_id" = $38 AND ("purged"."import_id" = $39)))
-- MySQL: ((((((((((((((((((SELECT `sms`.`campaign_id`, `sms`.`state`, COUNT(*) FROM `sms` WHERE `sms`.`campaign_id` = ? GROUP BY `sms`.`campaign_id`, `sms`.`state`) UNION ALL (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` = ? GROUP BY `sms_sent`.`campaign_id`)) UNION ALL (SELECT `sms_sent`.`campaign_id`, CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`delivery_state` IS NOT NULL)) GROUP BY `sms_sent`.`campaign_id`, `sms_sent`.`delivery_state`)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`delivered` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`undelivered` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`expired` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`no_report` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`class` != ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`class` = ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `import`.`campaign_id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import` WHERE `import`.`campaign_id` = ?)) UNION ALL (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` = ? AND (`sms`.`import_id` IS NULL)) GROUP BY `sms`.`campaign_id`)) UNION ALL (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`import_id` IS NULL)) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ? AND (`sms_failed`.`import_id` IS NULL)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`sent` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`failed` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`unknown` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`cancelled` FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE `purged`.`campaign_id` = ?)) UNION ALL (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE (`purged`.`campaign_id` = ? AND (`purged`.`import_id` = ?)))

SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT `sms`.`campaign_id`, `sms`.`state`, COUNT(*) FROM `sms` WHERE `sms`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms`.`campaign_id`, `sms`.`state`) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`delivery_state` IS NOT NULL)) GROUP BY `sms_sent`.`campaign_id`, `sms_sent`.`delivery_state`)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`delivered` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`undelivered` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`expired` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`no_report` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`class` != ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`class` = ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `import`.`campaign_id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`import_id` IS NULL)) GROUP BY `sms`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`import_id` IS NULL)) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`import_id` IS NULL)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`sent` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`failed` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`unknown` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, `purged`.`cancelled` FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE 1 = 1)) UNION ALL SELECT * FROM (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE (1 = 1 AND (`purged`.`import_id` = ?)));
-- PostgreSQL: ((((((((((((((((((SELECT "sms"."campaign_id", "sms"."state", COUNT(*) FROM "sms" WHERE "sms"."campaign_id" IN (SELECT id FROM campaign) GROUP BY "sms"."campaign_id", "sms"."state") UNION ALL (SELECT "sms_sent"."campaign_id", $1, COUNT(*) FROM "sms_sent" WHERE "sms_sent"."campaign_id" IN (SELECT id FROM campaign) GROUP BY "sms_sent"."campaign_id")) UNION ALL (SELECT "sms_sent"."campaign_id", CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM "sms_sent" WHERE ("sms_sent"."campaign_id" IN (SELECT id FROM campaign) AND ("sms_sent"."delivery_state" IS NOT NULL)) GROUP BY "sms_sent"."campaign_id", "sms_sent"."delivery_state")) UNION ALL (SELECT "purged"."campaign_id", $2, "purged"."delivered" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $3, "purged"."undelivered" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $4, "purged"."expired" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $5, "purged"."no_report" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "sms_failed"."campaign_id", $6, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" IN (SELECT id FROM campaign) AND ("sms_failed"."class" != $7)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "sms_failed"."campaign_id", $8, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" IN (SELECT id FROM campaign) AND ("sms_failed"."class" = $9)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "import"."campaign_id", $10, ("import"."accepted" - "import"."replaced") FROM "import" WHERE 1 = 1)) UNION ALL (SELECT "sms"."campaign_id", $11, COUNT(*) FROM "sms" WHERE ("sms"."campaign_id" IN (SELECT id FROM campaign) AND ("sms"."import_id" IS NULL)) GROUP BY "sms"."campaign_id")) UNION ALL (SELECT "sms_sent"."campaign_id", $12, COUNT(*) FROM "sms_sent" WHERE ("sms_sent"."campaign_id" IN (SELECT id FROM campaign) AND ("sms_sent"."import_id" IS NULL)) GROUP BY "sms_sent"."campaign_id")) UNION ALL (SELECT "sms_failed"."campaign_id", $13, COUNT(*) FROM "sms_failed" WHERE ("sms_failed"."campaign_id" IN (SELECT id FROM campaign) AND ("sms_failed"."import_id" IS NULL)) GROUP BY "sms_failed"."campaign_id")) UNION ALL (SELECT "purged"."campaign_id", $14, "purged"."sent" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $15, "purged"."failed" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $16, "purged"."unknown" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $17, "purged"."cancelled" FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $18, ((("purged"."sent" + "purged"."failed") + "purged"."unknown") + "purged"."cancelled") FROM "purged" WHERE 1 = 1)) UNION ALL (SELECT "purged"."campaign_id", $19, ((("purged"."sent" + "purged"."failed") + "purged"."unknown") + "purged"."cancelled") FROM "purged" WHERE (1 = 1 AND ("purged"."import_id" = $20)))
-- MySQL: ((((((((((((((((((SELECT `sms`.`campaign_id`, `sms`.`state`, COUNT(*) FROM `sms` WHERE `sms`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms`.`campaign_id`, `sms`.`state`) UNION ALL (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL (SELECT `sms_sent`.`campaign_id`, CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`delivery_state` IS NOT NULL)) GROUP BY `sms_sent`.`campaign_id`, `sms_sent`.`delivery_state`)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`delivered` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`undelivered` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`expired` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`no_report` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`class` != ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`class` = ?)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `import`.`campaign_id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import` WHERE 1 = 1)) UNION ALL (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`import_id` IS NULL)) GROUP BY `sms`.`campaign_id`)) UNION ALL (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`import_id` IS NULL)) GROUP BY `sms_sent`.`campaign_id`)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_failed`.`import_id` IS NULL)) GROUP BY `sms_failed`.`campaign_id`)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`sent` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`failed` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`unknown` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, `purged`.`cancelled` FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE 1 = 1)) UNION ALL (SELECT `purged`.`campaign_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged` WHERE (1 = 1 AND (`purged`.`import_id` = ?)))

SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT `import`.`id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import`) UNION ALL SELECT * FROM (SELECT `sms`.`import_id`, ?, COUNT(*) FROM `sms` GROUP BY `sms`.`import_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`import_id`, ?, COUNT(*) FROM `sms_sent` GROUP BY `sms_sent`.`import_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`import_id`, ?, COUNT(*) FROM `sms_failed` GROUP BY `sms_failed`.`import_id`)) UNION ALL SELECT * FROM (SELECT `purged`.`import_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged`)) UNION ALL SELECT * FROM (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` GROUP BY `sms`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` GROUP BY `sms_sent`.`campaign_id`)) UNION ALL SELECT * FROM (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` GROUP BY `sms_failed`.`campaign_id`);
-- PostgreSQL: (((((((SELECT "import"."id", $1, ("import"."accepted" - "import"."replaced") FROM "import") UNION ALL (SELECT "sms"."import_id", $2, COUNT(*) FROM "sms" GROUP BY "sms"."import_id")) UNION ALL (SELECT "sms_sent"."import_id", $3, COUNT(*) FROM "sms_sent" GROUP BY "sms_sent"."import_id")) UNION ALL (SELECT "sms_failed"."import_id", $4, COUNT(*) FROM "sms_failed" GROUP BY "sms_failed"."import_id")) UNION ALL (SELECT "purged"."import_id", $5, ((("purged"."sent" + "purged"."failed") + "purged"."unknown") + "purged"."cancelled") FROM "purged")) UNION ALL (SELECT "sms"."campaign_id", $6, COUNT(*) FROM "sms" GROUP BY "sms"."campaign_id")) UNION ALL (SELECT "sms_sent"."campaign_id", $7, COUNT(*) FROM "sms_sent" GROUP BY "sms_sent"."campaign_id")) UNION ALL (SELECT "sms_failed"."campaign_id", $8, COUNT(*) FROM "sms_failed" GROUP BY "sms_failed"."campaign_id")
-- MySQL: (((((((SELECT `import`.`id`, ?, (`import`.`accepted` - `import`.`replaced`) FROM `import`) UNION ALL (SELECT `sms`.`import_id`, ?, COUNT(*) FROM `sms` GROUP BY `sms`.`import_id`)) UNION ALL (SELECT `sms_sent`.`import_id`, ?, COUNT(*) FROM `sms_sent` GROUP BY `sms_sent`.`import_id`)) UNION ALL (SELECT `sms_failed`.`import_id`, ?, COUNT(*) FROM `sms_failed` GROUP BY `sms_failed`.`import_id`)) UNION ALL (SELECT `purged`.`import_id`, ?, (((`purged`.`sent` + `purged`.`failed`) + `purged`.`unknown`) + `purged`.`cancelled`) FROM `purged`)) UNION ALL (SELECT `sms`.`campaign_id`, ?, COUNT(*) FROM `sms` GROUP BY `sms`.`campaign_id`)) UNION ALL (SELECT `sms_sent`.`campaign_id`, ?, COUNT(*) FROM `sms_sent` GROUP BY `sms_sent`.`campaign_id`)) UNION ALL (SELECT `sms_failed`.`campaign_id`, ?, COUNT(*) FROM `sms_failed` GROUP BY `sms_failed`.`campaign_id`)

SELECT * FROM (SELECT `worker`.`id`, `worker`.`limits` FROM `worker`) UNION ALL SELECT * FROM (SELECT NULL, min(`suppression`.`phone`) FROM `suppression`);
-- PostgreSQL: (SELECT "worker"."id", "worker"."limits" FROM "worker") UNION ALL (SELECT NULL, min("suppression"."phone") FROM "suppression")
-- MySQL: (SELECT `worker`.`id`, `worker`.`limits` FROM `worker`) UNION ALL (SELECT NULL, min(`suppression`.`phone`) FROM `suppression`)

SELECT ?, `sms`.`last_code`, `sms`.`last_reason`, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` = ? AND (`sms`.`state` = ?)) GROUP BY `sms`.`last_code`, `sms`.`last_reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT ?, `sms`.`last_code`, `sms`.`last_reason`, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?)) GROUP BY `sms`.`last_code`, `sms`.`last_reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT CASE WHEN delivery_at - sent_at < 0 THEN 0 WHEN delivery_at - sent_at < 60000 THEN delivery_at - sent_at - (delivery_at - sent_at) % 100 ELSE delivery_at - sent_at - (delivery_at - sent_at) % 1000 END, COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`delivery_state` = ?)) AND (`sms_sent`.`delivery_at` IS NOT NULL)) GROUP BY CASE WHEN delivery_at - sent_at < 0 THEN 0 WHEN delivery_at - sent_at < 60000 THEN delivery_at - sent_at - (delivery_at - sent_at) % 100 ELSE delivery_at - sent_at - (delivery_at - sent_at) % 1000 END;

SELECT CASE WHEN delivery_at - sent_at < 0 THEN 0 WHEN delivery_at - sent_at < 60000 THEN delivery_at - sent_at - (delivery_at - sent_at) % 100 ELSE delivery_at - sent_at - (delivery_at - sent_at) % 1000 END, COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`delivery_state` = ?)) AND (`sms_sent`.`delivery_at` IS NOT NULL)) GROUP BY CASE WHEN delivery_at - sent_at < 0 THEN 0 WHEN delivery_at - sent_at < 60000 THEN delivery_at - sent_at - (delivery_at - sent_at) % 100 ELSE delivery_at - sent_at - (delivery_at - sent_at) % 1000 END;

SELECT COUNT(*) FROM (`import` INNER JOIN `campaign` ON (`campaign`.`id` = `import`.`campaign_id`)) WHERE (((`campaign`.`name` = ?) AND (`import`.`posted_by` IS NULL)) AND (`import`.`created_at` >= ?));

SELECT COUNT(*) FROM `campaign`;

SELECT COUNT(*) FROM `hook_event` WHERE ((`hook_event`.`hook` = ?) AND (`hook_event`.`state` = ?));

SELECT COUNT(*) FROM `receipt` WHERE (`receipt`.`due_at` IS NOT NULL);

SELECT COUNT(*) FROM `reply` WHERE (`reply`.`campaign_id` = ?);

SELECT COUNT(*) FROM `reply`;

SELECT COUNT(*) FROM `sms_sent` WHERE (`sms_sent`.`sent_at` < ?);

SELECT COUNT(*) FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` <= ?)) LIMIT ?;

SELECT COUNT(*) FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0));

SELECT COUNT(*) FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND NOT (EXISTS (SELECT `campaign`.`id`, `campaign`.`name`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`state`, `campaign`.`state_reason`, `campaign`.`unique_by`, `campaign`.`created_at`, `campaign`.`send_window`, `campaign`.`budget`, `campaign`.`approval`, `campaign`.`approval_reason` FROM `campaign` WHERE (`campaign`.`id` = ?))));

SELECT COUNT(*) FROM `sms` WHERE ((`sms`.`state` = ?) AND (`sms`.`claimed_at` < ?));

SELECT COUNT(*) FROM `suppression`;

SELECT COUNT(*), max(`sms_failed`.`failed_at`) FROM `sms_failed` WHERE ((`sms_failed`.`campaign_id` = ?) AND (`sms_failed`.`class` != ?)) LIMIT ?;

SELECT COUNT(*), max(`sms`.`unknown_at`), max(`sms`.`claimed_at`) FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) LIMIT ?;

SELECT DISTINCT `import`.`file` FROM `import`;

SELECT DISTINCT `purged`.`campaign_id` FROM `purged` WHERE (((EXISTS (SELECT `sms_key`.`campaign_id`, `sms_key`.`dedupe_key`, `sms_key`.`is_sent` FROM `sms_key` WHERE (`sms_key`.`campaign_id` = `purged`.`campaign_id`)) AND NOT (EXISTS (SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`due_at`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`worker_id`, `sms`.`claim`, `sms`.`claimed_at`, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`last_class`, `sms`.`last_code`, `sms`.`last_reason`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, `sms`.`refunded_claim`, `sms`.`created_at`, `sms`.`doubt_since`, `sms`.`resend_approved`, `sms`.`lane` FROM `sms` WHERE (`sms`.`campaign_id` = `purged`.`campaign_id`)))) AND NOT (EXISTS (SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`phone`, `sms_failed`.`content`, `sms_failed`.`params`, `sms_failed`.`segments`, `sms_failed`.`expires_at`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, `sms_failed`.`attempts`, `sms_failed`.`claim`, `sms_failed`.`reference`, `sms_failed`.`dedupe_key`, `sms_failed`.`created_at`, `sms_failed`.`failed_at`, `sms_failed`.`doubt_since`, `sms_failed`.`claimed_provider` FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = `purged`.`campaign_id`)))) AND NOT (EXISTS (SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`reference`, `sms_sent`.`provider`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`price`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`accepted_claims`, `sms_sent`.`claim`, `sms_sent`.`delivery_state`, `sms_sent`.`created_at`, `sms_sent`.`sent_at`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`delivery_note`, `sms_sent`.`content`, `sms_sent`.`params`, `sms_sent`.`resent_at`, `sms_sent`.`dedupe_key` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = `purged`.`campaign_id`))));

SELECT DISTINCT `sms_failed`.`campaign_id`, `sms_failed`.`class` FROM `sms_failed` WHERE `sms_failed`.`campaign_id` = ?;

SELECT DISTINCT `sms_failed`.`campaign_id`, `sms_failed`.`class` FROM `sms_failed` WHERE `sms_failed`.`campaign_id` IN (SELECT id FROM campaign);

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND delivery_state = 'expired');

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ? AND delivery_state = 'undelivered');

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND delivery_state = 'expired');

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND delivery_state = 'undelivered');

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE `sms_sent`.`campaign_id` = ?;

SELECT DISTINCT `sms_sent`.`campaign_id` FROM `sms_sent` WHERE `sms_sent`.`campaign_id` IN (SELECT id FROM campaign);

SELECT DISTINCT `sms`.`campaign_id` FROM `sms` WHERE ((`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?)) AND (`sms`.`claimed_at` < ?));

SELECT DISTINCT `sms`.`campaign_id`, `sms`.`lane` FROM `sms` WHERE (`sms`.`campaign_id` = ? AND (`sms`.`state` = ?));

SELECT DISTINCT `sms`.`campaign_id`, `sms`.`lane` FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?));

SELECT `__diesel_schema_migrations`.`version` FROM `__diesel_schema_migrations` ORDER BY `__diesel_schema_migrations`.`version`;

SELECT `activity`.`at`, `activity`.`campaign_id`, `activity`.`provider`, `activity`.`sent`, `activity`.`failed`, `activity`.`unknown`, `activity`.`throttled`, `activity`.`unavailable` FROM `activity` WHERE ((`activity`.`at` >= ?) AND (`activity`.`at` < ?)) ORDER BY `activity`.`at`, `activity`.`campaign_id`, `activity`.`provider`;

SELECT `approval_author`.`who` FROM `approval_author` WHERE (`approval_author`.`approval_id` = ?);

SELECT `approval_rule`.`name`, `approval_rule`.`value` FROM `approval_rule` ORDER BY `approval_rule`.`name`;

SELECT `approval`.`campaign_id`, `approval`.`hash` FROM `approval` WHERE (((`approval`.`state` = ?) AND (`approval`.`hash` LIKE ?)) AND (`approval`.`decided_at` < ?)) ORDER BY `approval`.`id` LIMIT ?;

SELECT `approval`.`has_lane`, `approval`.`state`, `approval`.`reason` FROM `approval` WHERE ((`approval`.`campaign_id` = ?) AND (`approval`.`state` NOT IN (…))) ORDER BY `approval`.`id`;

SELECT `approval`.`id` FROM `approval` WHERE (((((`approval`.`campaign_id` = ?) AND (`approval`.`state` = ?)) AND (`approval`.`has_lane` = ?)) AND (`approval`.`hash` = ?)) AND (`approval`.`reason` = ?)) ORDER BY `approval`.`id` LIMIT ?;

SELECT `approval`.`id` FROM `approval` WHERE (((`approval`.`campaign_id` = ?) AND (`approval`.`state` = ?)) AND (`approval`.`hash` != ?)) ORDER BY `approval`.`id`;

SELECT `approval`.`id` FROM `approval` WHERE (`approval`.`campaign_id` = ?) ORDER BY `approval`.`id` DESC;

SELECT `approval`.`id`, `approval`.`campaign_id` FROM `approval` WHERE (`approval`.`state` IN (…)) ORDER BY `approval`.`id` LIMIT ?;

SELECT `approval`.`id`, `approval`.`has_lane`, `approval`.`state` FROM `approval` WHERE ((`approval`.`campaign_id` = ?) AND (`approval`.`state` NOT IN (…)));

SELECT `approval`.`id`, `approval`.`has_lane`, `approval`.`state`, `approval`.`messages`, `approval`.`reason` FROM `approval` WHERE ((`approval`.`campaign_id` = ?) AND (`approval`.`state` NOT IN (…))) ORDER BY `approval`.`id`;

SELECT `approval`.`id`, `approval`.`messages` FROM `approval` WHERE (((`approval`.`campaign_id` = ?) AND (`approval`.`state` = ?)) AND (`approval`.`hash` = ?));

SELECT `approval`.`id`, `approval`.`reason` FROM `approval` WHERE ((`approval`.`campaign_id` = ?) AND (`approval`.`state` = ?)) ORDER BY `approval`.`id`;

SELECT `approval`.`id`, `approval`.`state`, `approval`.`decided_at` FROM `approval` WHERE (`approval`.`id` IN (…));

SELECT `approval`.`state`, `approval`.`reason` FROM `approval` WHERE (`approval`.`id` = ?) LIMIT ?;

SELECT `attempt`.`sms_id`, COUNT(*) FROM `attempt` WHERE ((`attempt`.`sms_id` IN (…)) AND (`attempt`.`outcome` = ?)) GROUP BY `attempt`.`sms_id`;

SELECT `attempt`.`sms_id`, `attempt`.`claim`, `attempt`.`at`, `attempt`.`provider`, `attempt`.`outcome`, `attempt`.`class`, `attempt`.`code`, `attempt`.`reason`, `attempt`.`reference` FROM `attempt` WHERE (`attempt`.`sms_id` IN (…)) ORDER BY `attempt`.`sms_id`, `attempt`.`claim`;

SELECT `attempt`.`sms_id`, `attempt`.`claim`, `attempt`.`at`, `attempt`.`provider`, `attempt`.`outcome`, `attempt`.`class`, `attempt`.`code`, `attempt`.`reason`, `attempt`.`reference` FROM `attempt` WHERE (`attempt`.`sms_id` IN (…));

SELECT `audit`.`at`, `audit`.`who`, `audit`.`what`, `audit`.`campaign`, `audit`.`detail` FROM `audit` ORDER BY `audit`.`id` DESC LIMIT ?;

SELECT `audit`.`at`, `audit`.`who`, `audit`.`what`, `audit`.`campaign`, `audit`.`detail` FROM `audit` WHERE ((`audit`.`campaign` = ?) AND (`audit`.`what` IN (…))) ORDER BY `audit`.`id` DESC LIMIT ?;

SELECT `campaign_watch`.`campaign_id` FROM `campaign_watch` WHERE (`campaign_watch`.`campaign_id` = ?);
-- PostgreSQL: SELECT "campaign_watch"."campaign_id" FROM "campaign_watch" WHERE ("campaign_watch"."campaign_id" = $1) FOR UPDATE
-- MySQL: SELECT `campaign_watch`.`campaign_id` FROM `campaign_watch` WHERE (`campaign_watch`.`campaign_id` = ?) FOR UPDATE

SELECT `campaign_watch`.`campaign_id`, `campaign_watch`.`opened_at`, `campaign_watch`.`due_since`, `campaign_watch`.`stuck_at` FROM `campaign_watch` ORDER BY `campaign_watch`.`campaign_id`;

SELECT `campaign_watch`.`campaign_id`, `campaign_watch`.`opened_at`, `campaign_watch`.`due_since`, `campaign_watch`.`stuck_at` FROM `campaign_watch` WHERE (`campaign_watch`.`campaign_id` = ?);
-- PostgreSQL: SELECT "campaign_watch"."campaign_id", "campaign_watch"."opened_at", "campaign_watch"."due_since", "campaign_watch"."stuck_at" FROM "campaign_watch" WHERE ("campaign_watch"."campaign_id" = $1) FOR UPDATE
-- MySQL: SELECT `campaign_watch`.`campaign_id`, `campaign_watch`.`opened_at`, `campaign_watch`.`due_since`, `campaign_watch`.`stuck_at` FROM `campaign_watch` WHERE (`campaign_watch`.`campaign_id` = ?) FOR UPDATE

SELECT `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` = ?) ORDER BY `campaign`.`id`;
-- PostgreSQL: SELECT "campaign"."approval" FROM "campaign" WHERE ("campaign"."id" = $1) ORDER BY "campaign"."id" FOR UPDATE
-- MySQL: SELECT `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` = ?) ORDER BY `campaign`.`id` FOR UPDATE

SELECT `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` = ?);

SELECT `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?) LIMIT ?;

SELECT `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?);

SELECT `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?);
-- PostgreSQL: SELECT "campaign"."budget" FROM "campaign" WHERE ("campaign"."id" = $1) FOR UPDATE
-- MySQL: SELECT `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?) FOR UPDATE

SELECT `campaign`.`created_at` FROM `campaign` ORDER BY `campaign`.`id` LIMIT ?;

SELECT `campaign`.`id` FROM (`campaign` INNER JOIN `sms_key` ON ((`sms_key`.`campaign_id` = `campaign`.`id`) AND (`sms_key`.`dedupe_key` = ?)));

SELECT `campaign`.`id` FROM `campaign` ORDER BY `campaign`.`id`;

SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`rate` != ?);

SELECT `campaign`.`id` FROM `campaign` WHERE EXISTS (SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`reference`, `sms_sent`.`provider`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`price`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`accepted_claims`, `sms_sent`.`claim`, `sms_sent`.`delivery_state`, `sms_sent`.`created_at`, `sms_sent`.`sent_at`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`delivery_note`, `sms_sent`.`content`, `sms_sent`.`params`, `sms_sent`.`resent_at`, `sms_sent`.`dedupe_key` FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = `campaign`.`id`) AND (`sms_sent`.`sent_at` < ?)));

SELECT `campaign`.`id`, `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`budget` != ?) ORDER BY `campaign`.`id`;

SELECT `campaign`.`id`, `campaign`.`name` FROM (`campaign` INNER JOIN `sms_key` ON ((`sms_key`.`campaign_id` = `campaign`.`id`) AND (`sms_key`.`dedupe_key` = ?))) ORDER BY `campaign`.`id` DESC LIMIT ?;

SELECT `campaign`.`id`, `campaign`.`name` FROM `campaign` WHERE (`campaign`.`id` IN (…));

SELECT `campaign`.`id`, `campaign`.`name`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget`, `campaign`.`state`, `campaign`.`state_reason`, `campaign`.`approval`, `campaign`.`approval_reason`, `campaign`.`created_at` FROM `campaign` ORDER BY `campaign`.`id`;

SELECT `campaign`.`id`, `campaign`.`name`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget`, `campaign`.`state`, `campaign`.`state_reason`, `campaign`.`approval`, `campaign`.`approval_reason`, `campaign`.`created_at` FROM `campaign` WHERE (`campaign`.`id` IN (…));

SELECT `campaign`.`id`, `campaign`.`name`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget`, `campaign`.`state`, `campaign`.`state_reason`, `campaign`.`approval`, `campaign`.`approval_reason`, `campaign`.`created_at` FROM `campaign` WHERE (`campaign`.`name` = ?) LIMIT ?;

SELECT `campaign`.`id`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget` FROM `campaign` WHERE (((((((`campaign`.`id` > ?) AND (`campaign`.`state` != ?)) AND (`campaign`.`created_at` < ?)) AND NOT (EXISTS (SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`due_at`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`worker_id`, `sms`.`claim`, `sms`.`claimed_at`, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`last_class`, `sms`.`last_code`, `sms`.`last_reason`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, `sms`.`refunded_claim`, `sms`.`created_at`, `sms`.`doubt_since`, `sms`.`resend_approved`, `sms`.`lane` FROM `sms` WHERE (`sms`.`campaign_id` = `campaign`.`id`)))) AND NOT (EXISTS (SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`phone`, `sms_failed`.`content`, `sms_failed`.`params`, `sms_failed`.`segments`, `sms_failed`.`expires_at`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, `sms_failed`.`attempts`, `sms_failed`.`claim`, `sms_failed`.`reference`, `sms_failed`.`dedupe_key`, `sms_failed`.`created_at`, `sms_failed`.`failed_at`, `sms_failed`.`doubt_since`, `sms_failed`.`claimed_provider` FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = `campaign`.`id`)))) AND NOT (EXISTS (SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`reference`, `sms_sent`.`provider`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`price`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`accepted_claims`, `sms_sent`.`claim`, `sms_sent`.`delivery_state`, `sms_sent`.`created_at`, `sms_sent`.`sent_at`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`delivery_note`, `sms_sent`.`content`, `sms_sent`.`params`, `sms_sent`.`resent_at`, `sms_sent`.`dedupe_key` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = `campaign`.`id`)))) AND NOT (EXISTS (SELECT `sms_key`.`campaign_id`, `sms_key`.`dedupe_key`, `sms_key`.`is_sent` FROM `sms_key` WHERE (`sms_key`.`campaign_id` = `campaign`.`id`)))) ORDER BY `campaign`.`id`;

SELECT `campaign`.`id`, `campaign`.`state` FROM `campaign` WHERE (`campaign`.`id` IN (…)) ORDER BY `campaign`.`id`;
-- PostgreSQL: SELECT "campaign"."id", "campaign"."state" FROM "campaign" WHERE ("campaign"."id" = ANY($1)) ORDER BY "campaign"."id" FOR SHARE
-- MySQL: SELECT `campaign`.`id`, `campaign`.`state` FROM `campaign` WHERE (`campaign`.`id` IN (…)) ORDER BY `campaign`.`id` FOR UPDATE

SELECT `campaign`.`id`, `campaign`.`state`, `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` IN (…)) ORDER BY `campaign`.`id`;
-- PostgreSQL: SELECT "campaign"."id", "campaign"."state", "campaign"."approval" FROM "campaign" WHERE ("campaign"."id" = ANY($1)) ORDER BY "campaign"."id" FOR UPDATE
-- MySQL: SELECT `campaign`.`id`, `campaign`.`state`, `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` IN (…)) ORDER BY `campaign`.`id` FOR UPDATE

SELECT `campaign`.`id`, `campaign`.`state`, `campaign`.`rate`, `campaign`.`provider`, `campaign`.`budget`, `campaign`.`approval` FROM `campaign` WHERE (`campaign`.`id` IN (…));

SELECT `campaign`.`name` FROM `campaign` WHERE (`campaign`.`id` = ?) LIMIT ?;

SELECT `campaign`.`name`, `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?) LIMIT ?;

SELECT `campaign`.`name`, `import`.`created_at` FROM (`import` INNER JOIN `campaign` ON (`campaign`.`id` = `import`.`campaign_id`)) WHERE ((((`import`.`hash` = ?) AND (`import`.`created_at` >= ?)) AND (`import`.`accepted` > ?)) AND (`campaign`.`name` != ?)) ORDER BY `import`.`id` DESC LIMIT ?;

SELECT `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget` FROM `campaign` WHERE (`campaign`.`id` = ?) LIMIT ?;

SELECT `campaign`.`state`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget` FROM `campaign` WHERE ((`campaign`.`id` = ?) AND (`campaign`.`created_at` < ?));
-- PostgreSQL: SELECT "campaign"."state", "campaign"."provider", "campaign"."sender", "campaign"."rate", "campaign"."priority", "campaign"."unique_by", "campaign"."send_window", "campaign"."budget" FROM "campaign" WHERE (("campaign"."id" = $1) AND ("campaign"."created_at" < $2)) FOR UPDATE
-- MySQL: SELECT `campaign`.`state`, `campaign`.`provider`, `campaign`.`sender`, `campaign`.`rate`, `campaign`.`priority`, `campaign`.`unique_by`, `campaign`.`send_window`, `campaign`.`budget` FROM `campaign` WHERE ((`campaign`.`id` = ?) AND (`campaign`.`created_at` < ?)) FOR UPDATE

SELECT `database_mode`.`is_practice` FROM `database_mode` LIMIT ?;

SELECT `dead`.`phone` FROM `dead` LIMIT ?;

SELECT `dead`.`phone` FROM `dead` WHERE (`dead`.`at` < ?) ORDER BY `dead`.`phone` LIMIT ?;

SELECT `dead`.`phone`, `dead`.`code`, `dead`.`provider`, `dead`.`at` FROM `dead` WHERE ((`dead`.`phone` IN (…)) AND (`dead`.`at` >= ?));

SELECT `failover`.`campaign_id`, `failover`.`provider`, `failover`.`fallback`, `failover`.`since`, `failover`.`last_at`, `failover`.`reason`, `failover`.`messages` FROM `failover` WHERE `failover`.`campaign_id` = ?;

SELECT `failover`.`campaign_id`, `failover`.`provider`, `failover`.`fallback`, `failover`.`since`, `failover`.`last_at`, `failover`.`reason`, `failover`.`messages` FROM `failover` WHERE `failover`.`campaign_id` IN (SELECT id FROM campaign);

SELECT `hook_event`.`id` FROM `hook_event` WHERE ((((((`hook_event`.`hook` = ?) AND (`hook_event`.`state` != ?)) AND (`hook_event`.`created_at` >= ?)) AND (`hook_event`.`id` > ?)) AND (`hook_event`.`id` <= ?)) AND (`hook_event`.`kind` = ?)) ORDER BY `hook_event`.`id` LIMIT ?;

SELECT `hook_event`.`id` FROM `hook_event` WHERE (((((`hook_event`.`hook` = ?) AND (`hook_event`.`state` != ?)) AND (`hook_event`.`created_at` >= ?)) AND (`hook_event`.`id` > ?)) AND (`hook_event`.`id` <= ?)) ORDER BY `hook_event`.`id` LIMIT ?;

SELECT `hook_event`.`id` FROM `hook_event` WHERE (((`hook_event`.`hook` = ?) AND (`hook_event`.`state` = ?)) AND (`hook_event`.`created_at` < ?)) LIMIT ?;

SELECT `hook_event`.`id` FROM `hook_event` WHERE (((`hook_event`.`hook` = ?) AND (`hook_event`.`state` IN (…))) AND (`hook_event`.`at` < ?)) LIMIT ?;

SELECT `hook_event`.`id` FROM `hook_event` WHERE ((`hook_event`.`hook` = ?) AND (`hook_event`.`state` = ?)) ORDER BY `hook_event`.`at` LIMIT ? OFFSET ?;

SELECT `hook_event`.`id` FROM `hook_event` WHERE ((`hook_event`.`id` BETWEEN ? AND ?) AND (`hook_event`.`phone` IN (…))) ORDER BY `hook_event`.`id`;

SELECT `hook_event`.`id`, `hook_event`.`created_at` FROM `hook_event` ORDER BY `hook_event`.`id` LIMIT ?;

SELECT `hook_event`.`id`, `hook_event`.`event_id`, `hook_event`.`kind`, `hook_event`.`body`, `hook_event`.`attempts` FROM `hook_event` WHERE (((`hook_event`.`hook` = ?) AND (`hook_event`.`state` = ?)) AND (`hook_event`.`at` <= ?)) ORDER BY `hook_event`.`at`, `hook_event`.`id` LIMIT ?;

SELECT `hook_event`.`state`, COUNT(*), min(`hook_event`.`created_at`) FROM `hook_event` WHERE (`hook_event`.`hook` = ?) GROUP BY `hook_event`.`state`;

SELECT `hook`.`holder`, `hook`.`leased_until`, `hook`.`name`, `hook`.`off_at`, `hook`.`off_reason`, `hook`.`failing_since`, `hook`.`last_error`, `hook`.`delivered`, `hook`.`skipped` FROM `hook` WHERE (`hook`.`name` = ?);
-- PostgreSQL: SELECT "hook"."holder", "hook"."leased_until", "hook"."name", "hook"."off_at", "hook"."off_reason", "hook"."failing_since", "hook"."last_error", "hook"."delivered", "hook"."skipped" FROM "hook" WHERE ("hook"."name" = $1) FOR UPDATE
-- MySQL: SELECT `hook`.`holder`, `hook`.`leased_until`, `hook`.`name`, `hook`.`off_at`, `hook`.`off_reason`, `hook`.`failing_since`, `hook`.`last_error`, `hook`.`delivered`, `hook`.`skipped` FROM `hook` WHERE (`hook`.`name` = ?) FOR UPDATE

SELECT `hook`.`name`, `hook`.`off_at`, `hook`.`off_reason`, `hook`.`failing_since`, `hook`.`last_error`, `hook`.`delivered`, `hook`.`skipped` FROM `hook` ORDER BY `hook`.`name`;

SELECT `hook`.`name`, `hook`.`off_at`, `hook`.`off_reason`, `hook`.`failing_since`, `hook`.`last_error`, `hook`.`delivered`, `hook`.`skipped` FROM `hook` WHERE (`hook`.`name` = ?) LIMIT ?;

SELECT `import`.`accepted` FROM (`import` INNER JOIN `campaign` ON (`campaign`.`id` = `import`.`campaign_id`)) WHERE ((`campaign`.`name` = ?) AND (`import`.`created_at` >= ?));

SELECT `import`.`accepted`, `import`.`duplicates`, `import`.`suppressed`, `import`.`rejected` FROM `import`;

SELECT `import`.`campaign_id` FROM `import` WHERE (`import`.`hash` = ?) ORDER BY `import`.`id` DESC LIMIT ?;

SELECT `import`.`file`, `import`.`row_count`, `import`.`accepted`, `import`.`duplicates`, `import`.`suppressed`, `import`.`rejected`, `import`.`gsm7`, `import`.`ucs2`, COALESCE(template, sample) FROM `import` WHERE 1 = 1 ORDER BY `import`.`id`;

SELECT `import`.`file`, `import`.`row_count`, `import`.`accepted`, `import`.`duplicates`, `import`.`suppressed`, `import`.`rejected`, `import`.`gsm7`, `import`.`ucs2`, COALESCE(template, sample) FROM `import` WHERE `import`.`campaign_id` = ? ORDER BY `import`.`id`;

SELECT `import`.`id` FROM `import` WHERE ((`import`.`id` = ?) AND (`import`.`finished_at` IS NULL));

SELECT `import`.`id`, `import`.`accepted`, `import`.`last_line` FROM `import` WHERE ((((`import`.`campaign_id` = ?) AND (`import`.`hash` = ?)) AND (`import`.`posted_by` = ?)) AND (`import`.`finished_at` IS NULL));

SELECT `import`.`id`, `import`.`campaign_id`, `import`.`file`, `import`.`hash`, `import`.`finished_at` FROM `import` ORDER BY `import`.`id`;

SELECT `import`.`id`, `import`.`file`, `import`.`accepted`, `import`.`replaced`, `import`.`created_at`, `import`.`finished_at` FROM `import` WHERE (`import`.`campaign_id` = ?) ORDER BY `import`.`id`;
-- PostgreSQL: SELECT "import"."id", "import"."file", "import"."accepted", "import"."replaced", "import"."created_at", "import"."finished_at" FROM "import" WHERE ("import"."campaign_id" = $1) ORDER BY "import"."id" FOR UPDATE
-- MySQL: SELECT `import`.`id`, `import`.`file`, `import`.`accepted`, `import`.`replaced`, `import`.`created_at`, `import`.`finished_at` FROM `import` WHERE (`import`.`campaign_id` = ?) ORDER BY `import`.`id` FOR UPDATE

SELECT `import`.`last_line` FROM `import` WHERE (`import`.`hash` = ?) LIMIT ?;

SELECT `intake_key`.`request_key`, `intake_key`.`fingerprint`, `intake_key`.`sms_id` FROM `intake_key` WHERE ((`intake_key`.`scope` = ?) AND (`intake_key`.`request_key` IN (…)));
-- PostgreSQL: SELECT "intake_key"."request_key", "intake_key"."fingerprint", "intake_key"."sms_id" FROM "intake_key" WHERE (("intake_key"."scope" = $1) AND ("intake_key"."request_key" = ANY($2))) FOR UPDATE
-- MySQL: SELECT `intake_key`.`request_key`, `intake_key`.`fingerprint`, `intake_key`.`sms_id` FROM `intake_key` WHERE ((`intake_key`.`scope` = ?) AND (`intake_key`.`request_key` IN (…))) FOR UPDATE

SELECT `intake_key`.`scope`, `intake_key`.`request_key` FROM `intake_key` WHERE (`intake_key`.`expires_at` < ?) ORDER BY `intake_key`.`expires_at` LIMIT ?;

SELECT `intake_key`.`sms_id` FROM `intake_key` WHERE ((`intake_key`.`scope` = ?) AND (`intake_key`.`expires_at` >= ?)) LIMIT ?;

SELECT `lane`.`lane` FROM `lane` WHERE (`lane`.`campaign_id` = ?) ORDER BY `lane`.`lane`;

SELECT `lane`.`lane`, `lane`.`provider`, `lane`.`sender` FROM `lane` WHERE (`lane`.`campaign_id` = ?);

SELECT `lane`.`provider`, `lane`.`sender`, COUNT(*) FROM (`lane` INNER JOIN `sms` ON ((`sms`.`campaign_id` = `lane`.`campaign_id`) AND (`sms`.`lane` = `lane`.`lane`))) WHERE (((`lane`.`campaign_id` = ?) AND (`sms`.`campaign_id` = ?)) AND (`sms`.`state` = ?)) GROUP BY `lane`.`provider`, `lane`.`sender`;

SELECT `purged`.`import_id` FROM `purged` WHERE (`purged`.`campaign_id` = ?) LIMIT ?;

SELECT `purged`.`import_id`, `purged`.`sent`, `purged`.`failed`, `purged`.`unknown`, `purged`.`cancelled` FROM `purged` WHERE (`purged`.`campaign_id` = ?);

SELECT `purged`.`segments`, `purged`.`attempts`, `purged`.`repeated` FROM `purged` WHERE 1 = 1;

SELECT `purged`.`segments`, `purged`.`attempts`, `purged`.`repeated` FROM `purged` WHERE `purged`.`campaign_id` = ?;

SELECT `rate_limit`.`counting` FROM `rate_limit` WHERE ((`rate_limit`.`scope` = ?) AND (`rate_limit`.`counted_from` IS NULL));
-- PostgreSQL: SELECT "rate_limit"."counting" FROM "rate_limit" WHERE (("rate_limit"."scope" = $1) AND ("rate_limit"."counted_from" IS NULL)) FOR UPDATE
-- MySQL: SELECT `rate_limit`.`counting` FROM `rate_limit` WHERE ((`rate_limit`.`scope` = ?) AND (`rate_limit`.`counted_from` IS NULL)) FOR UPDATE

SELECT `rate_limit`.`counting` FROM `rate_limit` WHERE (`rate_limit`.`scope` = ?) LIMIT ?;

SELECT `rate_limit`.`scope`, `rate_limit`.`counted_from`, `rate_limit`.`counting` FROM `rate_limit` WHERE (`rate_limit`.`scope` IN (…));

SELECT `rate_limit`.`scope`, `rate_limit`.`next_us`, `rate_limit`.`cost_max`, `rate_limit`.`buckets`, `rate_limit`.`stopped_until`, `rate_limit`.`stop_reason`, `rate_limit`.`spent` FROM `rate_limit` WHERE (`rate_limit`.`scope` IN (…)) ORDER BY `rate_limit`.`scope`;

SELECT `rate_limit`.`scope`, `rate_limit`.`next_us`, `rate_limit`.`cost_max`, `rate_limit`.`buckets`, `rate_limit`.`stopped_until`, `rate_limit`.`stop_reason`, `rate_limit`.`spent` FROM `rate_limit` WHERE (`rate_limit`.`scope` IN (…)) ORDER BY `rate_limit`.`scope`;
-- PostgreSQL: SELECT "rate_limit"."scope", "rate_limit"."next_us", "rate_limit"."cost_max", "rate_limit"."buckets", "rate_limit"."stopped_until", "rate_limit"."stop_reason", "rate_limit"."spent" FROM "rate_limit" WHERE ("rate_limit"."scope" = ANY($1)) ORDER BY "rate_limit"."scope" FOR UPDATE
-- MySQL: SELECT `rate_limit`.`scope`, `rate_limit`.`next_us`, `rate_limit`.`cost_max`, `rate_limit`.`buckets`, `rate_limit`.`stopped_until`, `rate_limit`.`stop_reason`, `rate_limit`.`spent` FROM `rate_limit` WHERE (`rate_limit`.`scope` IN (…)) ORDER BY `rate_limit`.`scope` FOR UPDATE

SELECT `rate_limit`.`scope`, `rate_limit`.`spent`, `rate_limit`.`counted_from` FROM `rate_limit` WHERE (`rate_limit`.`scope` IN (…));

SELECT `rate_limit`.`scope`, `rate_limit`.`stopped_until`, `rate_limit`.`stop_reason` FROM `rate_limit` WHERE (`rate_limit`.`stopped_until` > ?) ORDER BY `rate_limit`.`scope`;

SELECT `rate_limit`.`spent` FROM `rate_limit` WHERE (`rate_limit`.`scope` = ?) LIMIT ?;

SELECT `rate_limit`.`spent`, `rate_limit`.`counted_from` FROM `rate_limit` WHERE (`rate_limit`.`scope` = ?) LIMIT ?;

SELECT `receipt_pull`.`holder`, `receipt_pull`.`leased_until`, `receipt_pull`.`pulled_at`, `receipt_pull`.`position` FROM `receipt_pull` WHERE (`receipt_pull`.`provider` = ?);
-- PostgreSQL: SELECT "receipt_pull"."holder", "receipt_pull"."leased_until", "receipt_pull"."pulled_at", "receipt_pull"."position" FROM "receipt_pull" WHERE ("receipt_pull"."provider" = $1) FOR UPDATE
-- MySQL: SELECT `receipt_pull`.`holder`, `receipt_pull`.`leased_until`, `receipt_pull`.`pulled_at`, `receipt_pull`.`position` FROM `receipt_pull` WHERE (`receipt_pull`.`provider` = ?) FOR UPDATE

SELECT `receipt`.`id` FROM `receipt` WHERE ((`receipt`.`id` BETWEEN ? AND ?) AND (`receipt`.`phone` IN (…))) ORDER BY `receipt`.`id`;

SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (1=0)) ORDER BY `receipt`.`id`;
-- PostgreSQL: SELECT "receipt"."id", "receipt"."provider", "receipt"."message_key", "receipt"."state", "receipt"."part", "receipt"."parts", "receipt"."reference", "receipt"."message_id", "receipt"."phone", "receipt"."class", "receipt"."code", "receipt"."reason", "receipt"."at", "receipt"."received_at", "receipt"."due_at", "receipt"."sms_id", "receipt"."is_dead_number" FROM "receipt" WHERE (("receipt"."due_at" IS NOT NULL) AND ("receipt"."message_id" = ANY($1))) ORDER BY "receipt"."id" FOR UPDATE
-- MySQL: SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (1=0)) ORDER BY `receipt`.`id` FOR UPDATE

SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (`receipt`.`message_id` IN (…))) ORDER BY `receipt`.`id`;
-- PostgreSQL: SELECT "receipt"."id", "receipt"."provider", "receipt"."message_key", "receipt"."state", "receipt"."part", "receipt"."parts", "receipt"."reference", "receipt"."message_id", "receipt"."phone", "receipt"."class", "receipt"."code", "receipt"."reason", "receipt"."at", "receipt"."received_at", "receipt"."due_at", "receipt"."sms_id", "receipt"."is_dead_number" FROM "receipt" WHERE (("receipt"."due_at" IS NOT NULL) AND ("receipt"."message_id" = ANY($1))) ORDER BY "receipt"."id" FOR UPDATE
-- MySQL: SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (`receipt`.`message_id` IN (…))) ORDER BY `receipt`.`id` FOR UPDATE

SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (`receipt`.`reference` IN (…))) ORDER BY `receipt`.`id`;
-- PostgreSQL: SELECT "receipt"."id", "receipt"."provider", "receipt"."message_key", "receipt"."state", "receipt"."part", "receipt"."parts", "receipt"."reference", "receipt"."message_id", "receipt"."phone", "receipt"."class", "receipt"."code", "receipt"."reason", "receipt"."at", "receipt"."received_at", "receipt"."due_at", "receipt"."sms_id", "receipt"."is_dead_number" FROM "receipt" WHERE (("receipt"."due_at" IS NOT NULL) AND ("receipt"."reference" = ANY($1))) ORDER BY "receipt"."id" FOR UPDATE
-- MySQL: SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE ((`receipt`.`due_at` IS NOT NULL) AND (`receipt`.`reference` IN (…))) ORDER BY `receipt`.`id` FOR UPDATE

SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE (`receipt`.`due_at` <= ?) ORDER BY `receipt`.`due_at`, `receipt`.`id` LIMIT ?;
-- PostgreSQL: SELECT "receipt"."id", "receipt"."provider", "receipt"."message_key", "receipt"."state", "receipt"."part", "receipt"."parts", "receipt"."reference", "receipt"."message_id", "receipt"."phone", "receipt"."class", "receipt"."code", "receipt"."reason", "receipt"."at", "receipt"."received_at", "receipt"."due_at", "receipt"."sms_id", "receipt"."is_dead_number" FROM "receipt" WHERE ("receipt"."due_at" <= $1) ORDER BY "receipt"."due_at", "receipt"."id" LIMIT $2 FOR UPDATE
-- MySQL: SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE (`receipt`.`due_at` <= ?) ORDER BY `receipt`.`due_at`, `receipt`.`id` LIMIT ? FOR UPDATE

SELECT `receipt`.`id`, `receipt`.`provider`, `receipt`.`message_key`, `receipt`.`state`, `receipt`.`part`, `receipt`.`parts`, `receipt`.`reference`, `receipt`.`message_id`, `receipt`.`phone`, `receipt`.`class`, `receipt`.`code`, `receipt`.`reason`, `receipt`.`at`, `receipt`.`received_at`, `receipt`.`due_at`, `receipt`.`sms_id`, `receipt`.`is_dead_number` FROM `receipt` WHERE (`receipt`.`sms_id` IN (…)) ORDER BY `receipt`.`id`;

SELECT `recipient_start`.`ended_at` FROM `recipient_start` WHERE (`recipient_start`.`ended_at` < ?) ORDER BY `recipient_start`.`ended_at` LIMIT ?;

SELECT `recipient_start`.`phone`, `recipient_start`.`sms_id`, `recipient_start`.`claim`, `recipient_start`.`ended_at`, `sms`.`id` FROM (`recipient_start` LEFT OUTER JOIN `sms` ON (((`sms`.`id` = `recipient_start`.`sms_id`) AND (`sms`.`claim` = `recipient_start`.`claim`)) AND (`sms`.`state` = ?))) WHERE (`recipient_start`.`phone` IN (…));

SELECT `recipient_start`.`sms_id`, `recipient_start`.`claim` FROM `recipient_start` WHERE ((`recipient_start`.`phone` IN (…)) AND (`recipient_start`.`ended_at` IS NOT NULL));

SELECT `reclaimed_worker`.`token` FROM `reclaimed_worker` WHERE (`reclaimed_worker`.`token` = ?) LIMIT ?;

SELECT `reply`.`id` FROM `reply` WHERE ((`reply`.`id` BETWEEN ? AND ?) AND (`reply`.`phone` IN (…))) ORDER BY `reply`.`id`;

SELECT `reply`.`id` FROM `reply` WHERE ((`reply`.`provider` = ?) AND (`reply`.`reply_key` = ?)) LIMIT ?;

SELECT `reply`.`id` FROM `reply` WHERE (`reply`.`received_at` < ?) ORDER BY `reply`.`received_at` LIMIT ?;

SELECT `reply`.`id`, `reply`.`provider`, `reply`.`phone`, `reply`.`sender`, `reply`.`content`, `reply`.`campaign_id`, `reply`.`received_at` FROM `reply` WHERE (`reply`.`id` < ?) ORDER BY `reply`.`id` DESC LIMIT ?;

SELECT `schedule_run`.`fire`, `schedule_run`.`period`, `schedule_run`.`campaign`, `schedule_run`.`state`, `schedule_run`.`started_at`, `schedule_run`.`finished_at`, `schedule_run`.`row_count`, `schedule_run`.`accepted`, `schedule_run`.`suppressed`, `schedule_run`.`rejected`, `schedule_run`.`reasons`, `schedule_run`.`error`, `schedule_run`.`asked_until` FROM `schedule_run` WHERE (`schedule_run`.`schedule_id` = ?) ORDER BY `schedule_run`.`fire` DESC, `schedule_run`.`id` DESC LIMIT ?;

SELECT `schedule_run`.`id` FROM ((`schedule_run` INNER JOIN `campaign` ON (`campaign`.`name` = `schedule_run`.`campaign`)) INNER JOIN `schedule` ON (`schedule`.`id` = `schedule_run`.`schedule_id`)) WHERE ((`campaign`.`id` = ?) AND (`schedule_run`.`period` >= `schedule`.`period`)) LIMIT ?;

SELECT `schedule_run`.`id` FROM (`schedule_run` INNER JOIN `campaign` ON (`campaign`.`name` = `schedule_run`.`campaign`)) WHERE ((`campaign`.`id` = ?) AND (`schedule_run`.`keys_until` > ?)) LIMIT ?;

SELECT `schedule_run`.`id`, `schedule_run`.`campaign`, `schedule_run`.`started_at` FROM `schedule_run` WHERE (((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` < ?)) AND (`schedule_run`.`state` = ?));

SELECT `schedule_run`.`started_at` FROM `schedule_run` WHERE ((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` = ?)) LIMIT ?;

SELECT `schedule_run`.`started_at`, `schedule_run`.`row_count`, `schedule_run`.`accepted` FROM `schedule_run` WHERE ((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`campaign` = ?)) ORDER BY `schedule_run`.`started_at`;

SELECT `schedule`.`fire`, `schedule`.`holder`, `schedule`.`leased_until` FROM `schedule` WHERE (`schedule`.`id` = ?);
-- PostgreSQL: SELECT "schedule"."fire", "schedule"."holder", "schedule"."leased_until" FROM "schedule" WHERE ("schedule"."id" = $1) FOR UPDATE
-- MySQL: SELECT `schedule`.`fire`, `schedule`.`holder`, `schedule`.`leased_until` FROM `schedule` WHERE (`schedule`.`id` = ?) FOR UPDATE

SELECT `schedule`.`id` FROM `schedule` WHERE (((`schedule`.`is_paused` = ?) AND (`schedule`.`next_at` <= ?)) AND (`schedule`.`leased_until` < ?)) ORDER BY `schedule`.`next_at`, `schedule`.`id`;

SELECT `schedule`.`id` FROM `schedule`;

SELECT `schedule`.`id`, `schedule`.`name`, `schedule`.`cron`, `schedule`.`timezone`, `schedule`.`source`, `schedule`.`query`, `schedule`.`unique_by`, `schedule`.`per`, `schedule`.`options`, `schedule`.`catch_up`, `schedule`.`is_paused`, `schedule`.`fire`, `schedule`.`next_at`, `schedule`.`attempts`, `schedule`.`created_at`, `schedule`.`created_by` FROM `schedule` ORDER BY `schedule`.`name`;

SELECT `schedule`.`id`, `schedule`.`name`, `schedule`.`cron`, `schedule`.`timezone`, `schedule`.`source`, `schedule`.`query`, `schedule`.`unique_by`, `schedule`.`per`, `schedule`.`options`, `schedule`.`catch_up`, `schedule`.`is_paused`, `schedule`.`fire`, `schedule`.`next_at`, `schedule`.`attempts`, `schedule`.`created_at`, `schedule`.`created_by` FROM `schedule` WHERE (`schedule`.`id` = ?) LIMIT ?;

SELECT `schedule`.`id`, `schedule`.`name`, `schedule`.`cron`, `schedule`.`timezone`, `schedule`.`source`, `schedule`.`query`, `schedule`.`unique_by`, `schedule`.`per`, `schedule`.`options`, `schedule`.`catch_up`, `schedule`.`is_paused`, `schedule`.`fire`, `schedule`.`next_at`, `schedule`.`attempts`, `schedule`.`created_at`, `schedule`.`created_by` FROM `schedule` WHERE (`schedule`.`name` = ?) LIMIT ?;

SELECT `sender_off`.`provider`, `sender_off`.`sender` FROM `sender_off`;

SELECT `sms_failed`.`campaign_id` FROM `sms_failed` WHERE (((`sms_failed`.`id` = ?) AND (`sms_failed`.`claim` = ?)) AND (`sms_failed`.`class` = ?));
-- PostgreSQL: SELECT "sms_failed"."campaign_id" FROM "sms_failed" WHERE ((("sms_failed"."id" = $1) AND ("sms_failed"."claim" = $2)) AND ("sms_failed"."class" = $3)) FOR UPDATE
-- MySQL: SELECT `sms_failed`.`campaign_id` FROM `sms_failed` WHERE (((`sms_failed`.`id` = ?) AND (`sms_failed`.`claim` = ?)) AND (`sms_failed`.`class` = ?)) FOR UPDATE

SELECT `sms_failed`.`campaign_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (`sms_failed`.`id` = ?);
-- PostgreSQL: SELECT "sms_failed"."campaign_id", "sms_failed"."dedupe_key", "sms_failed"."class" FROM "sms_failed" WHERE ("sms_failed"."id" = $1) FOR UPDATE
-- MySQL: SELECT `sms_failed`.`campaign_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (`sms_failed`.`id` = ?) FOR UPDATE

SELECT `sms_failed`.`class`, COUNT(*) FROM `sms_failed` WHERE (`sms_failed`.`failed_at` < ?) GROUP BY `sms_failed`.`class`;

SELECT `sms_failed`.`class`, COUNT(*), min(`sms_failed`.`failed_at`), max(`sms_failed`.`failed_at`) FROM `sms_failed` WHERE `sms_failed`.`campaign_id` = ? GROUP BY `sms_failed`.`class` ORDER BY `sms_failed`.`class`;

SELECT `sms_failed`.`class`, COUNT(*), min(`sms_failed`.`failed_at`), max(`sms_failed`.`failed_at`) FROM `sms_failed` WHERE `sms_failed`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms_failed`.`class` ORDER BY `sms_failed`.`class`;

SELECT `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, COUNT(*) FROM `sms_failed` WHERE `sms_failed`.`campaign_id` = ? GROUP BY `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, COUNT(*) FROM `sms_failed` WHERE `sms_failed`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (((((`sms_failed`.`campaign_id` NOT IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` = ?))) AND (`sms_failed`.`campaign_id` = ?)) AND (`sms_failed`.`class` = ?)) AND (`sms_failed`.`code` = ?)) AND (`sms_failed`.`phone` = ?)) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE ((((`sms_failed`.`campaign_id` NOT IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` = ?))) AND (`sms_failed`.`class` = ?)) AND ((`sms_failed`.`dedupe_key` IS NOT NULL) OR (`sms_failed`.`import_id` IS NULL))) AND ((`sms_failed`.`expires_at` IS NULL) OR (`sms_failed`.`expires_at` > ?))) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (((`sms_failed`.`campaign_id` NOT IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` = ?))) AND (`sms_failed`.`class` != ?)) AND ((`sms_failed`.`expires_at` IS NULL) OR (`sms_failed`.`expires_at` > ?))) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (((`sms_failed`.`campaign_id` NOT IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` = ?))) AND (`sms_failed`.`class` = ?)) AND ((`sms_failed`.`expires_at` IS NULL) OR (`sms_failed`.`expires_at` > ?))) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE ((`sms_failed`.`campaign_id` = ?) AND (`sms_failed`.`import_id` IS NULL)) LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE ((`sms_failed`.`campaign_id` NOT IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` = ?))) AND (`sms_failed`.`class` != ?)) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (`sms_failed`.`campaign_id` = ?) LIMIT ?;

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…));

SELECT `sms_failed`.`id`, `campaign`.`name`, `sms_failed`.`phone`, `sms_failed`.`reference`, `sms_failed`.`claimed_provider`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason` FROM (`sms_failed` INNER JOIN `campaign` ON (`campaign`.`id` = `sms_failed`.`campaign_id`)) WHERE ((`sms_failed`.`id` IN (…)) AND (`sms_failed`.`class` != ?)) ORDER BY `sms_failed`.`id`;

SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (1=0) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id", "sms_failed"."campaign_id", "sms_failed"."class", "sms_failed"."dedupe_key" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (1=0) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id", "sms_failed"."campaign_id", "sms_failed"."class", "sms_failed"."dedupe_key" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (1=0) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id", "sms_failed"."campaign_id", "sms_failed"."import_id", "sms_failed"."dedupe_key", "sms_failed"."class" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (1=0) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id", "sms_failed"."campaign_id", "sms_failed"."import_id", "sms_failed"."dedupe_key", "sms_failed"."class" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`import_id`, `sms_failed`.`dedupe_key`, `sms_failed`.`class` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id`, `sms_failed`.`campaign_id`, `sms_failed`.`phone`, `sms_failed`.`content`, `sms_failed`.`params`, `sms_failed`.`attempts`, `sms_failed`.`class`, `sms_failed`.`code`, `sms_failed`.`reason`, `sms_failed`.`failed_at`, `sms_failed`.`failed_at` FROM `sms_failed` WHERE (((`sms_failed`.`campaign_id` = ?) AND (`sms_failed`.`class` = ?)) AND (`sms_failed`.`id` > ?)) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id`, `sms_failed`.`claim`, ?, `sms_failed`.`phone`, `sms_failed`.`reference`, `sms_failed`.`claimed_provider` FROM `sms_failed` WHERE (`sms_failed`.`reference` IN (…));

SELECT `sms_failed`.`id`, `sms_failed`.`claim`, `sms_failed`.`created_at`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id`;
-- PostgreSQL: SELECT "sms_failed"."id", "sms_failed"."claim", "sms_failed"."created_at", "sms_failed"."campaign_id", "sms_failed"."class", "sms_failed"."dedupe_key" FROM "sms_failed" WHERE ("sms_failed"."id" = ANY($1)) ORDER BY "sms_failed"."id" FOR UPDATE
-- MySQL: SELECT `sms_failed`.`id`, `sms_failed`.`claim`, `sms_failed`.`created_at`, `sms_failed`.`campaign_id`, `sms_failed`.`class`, `sms_failed`.`dedupe_key` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…)) ORDER BY `sms_failed`.`id` FOR UPDATE

SELECT `sms_failed`.`id`, `sms_failed`.`class` FROM `sms_failed` WHERE ((`sms_failed`.`id` BETWEEN ? AND ?) AND (`sms_failed`.`phone` IN (…))) ORDER BY `sms_failed`.`id`;

SELECT `sms_failed`.`id`, `sms_failed`.`failed_at` FROM `sms_failed` WHERE (`sms_failed`.`id` > ?) ORDER BY `sms_failed`.`id` LIMIT ?;

SELECT `sms_failed`.`id`, `sms_failed`.`phone` FROM `sms_failed` WHERE (`sms_failed`.`id` IN (…));

SELECT `sms_key`.`campaign_id` FROM `sms_key` WHERE (`sms_key`.`campaign_id` = ?) LIMIT ?;

SELECT `sms_key`.`dedupe_key` FROM `sms_key` WHERE ((`sms_key`.`campaign_id` = ?) AND (`sms_key`.`dedupe_key` IN (…)));

SELECT `sms_key`.`dedupe_key` FROM `sms_key` WHERE (`sms_key`.`campaign_id` = ?) ORDER BY `sms_key`.`dedupe_key` LIMIT ?;
-- PostgreSQL: SELECT "sms_key"."dedupe_key" FROM "sms_key" WHERE ("sms_key"."campaign_id" = $1) ORDER BY "sms_key"."dedupe_key" LIMIT $2 FOR UPDATE
-- MySQL: SELECT `sms_key`.`dedupe_key` FROM `sms_key` WHERE (`sms_key`.`campaign_id` = ?) ORDER BY `sms_key`.`dedupe_key` LIMIT ? FOR UPDATE

SELECT `sms_key`.`dedupe_key`, `sms_key`.`is_sent` FROM `sms_key` WHERE ((`sms_key`.`campaign_id` = ?) AND (`sms_key`.`dedupe_key` IN (…))) ORDER BY `sms_key`.`dedupe_key`;
-- PostgreSQL: SELECT "sms_key"."dedupe_key", "sms_key"."is_sent" FROM "sms_key" WHERE (("sms_key"."campaign_id" = $1) AND ("sms_key"."dedupe_key" = ANY($2))) ORDER BY "sms_key"."dedupe_key" FOR UPDATE
-- MySQL: SELECT `sms_key`.`dedupe_key`, `sms_key`.`is_sent` FROM `sms_key` WHERE ((`sms_key`.`campaign_id` = ?) AND (`sms_key`.`dedupe_key` IN (…))) ORDER BY `sms_key`.`dedupe_key` FOR UPDATE

SELECT `sms_message`.`dedupe_key` FROM `sms_message` WHERE (((`sms_message`.`campaign_id` = ?) AND (`sms_message`.`dedupe_key` IN (…))) AND (`sms_message`.`state` != ?));

SELECT `sms_message`.`id` FROM `sms_message` WHERE ((`sms_message`.`id` IN (…)) AND (`sms_message`.`created_at` > ?));

SELECT `sms_message`.`id` FROM `sms_message` WHERE (`sms_message`.`id` IN (…)) LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`dedupe_key`, `sms_message`.`state`, `sms_message`.`delivery`, `sms_message`.`resent_at` FROM `sms_message` WHERE (`sms_message`.`id` IN (…));

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE ((`sms_message`.`import_id` IN (SELECT `import`.`id` FROM `import` WHERE (`import`.`posted_by` = ?))) AND (`sms_message`.`id` = ?)) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE ((`sms_message`.`import_id` IN (SELECT `import`.`id` FROM `import` WHERE (`import`.`posted_by` = ?))) AND (`sms_message`.`phone` = ?)) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE ((`sms_message`.`import_id` IN (SELECT `import`.`id` FROM `import` WHERE (`import`.`posted_by` = ?))) AND (`sms_message`.`reference` = ?)) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE (`sms_message`.`id` = ?) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE (`sms_message`.`phone` = ?) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`campaign_id`, `sms_message`.`import_id`, `sms_message`.`phone`, `sms_message`.`content`, `sms_message`.`state`, `sms_message`.`segments`, `sms_message`.`attempts`, `sms_message`.`reference`, `sms_message`.`provider`, `sms_message`.`message_id`, `sms_message`.`accepted_claims`, `sms_message`.`class`, `sms_message`.`code`, `sms_message`.`reason`, `sms_message`.`delivery`, `sms_message`.`created_at`, `sms_message`.`at` FROM `sms_message` WHERE (`sms_message`.`reference` = ?) ORDER BY `sms_message`.`id` DESC LIMIT ?;

SELECT `sms_message`.`id`, `sms_message`.`created_at` FROM `sms_message` WHERE (`sms_message`.`id` IN (…));

SELECT `sms_sent`.`claim`, `sms_sent`.`accepted`, `sms_sent`.`accepted_claims` FROM `sms_sent` WHERE (`sms_sent`.`id` = ?);
-- PostgreSQL: SELECT "sms_sent"."claim", "sms_sent"."accepted", "sms_sent"."accepted_claims" FROM "sms_sent" WHERE ("sms_sent"."id" = $1) FOR UPDATE
-- MySQL: SELECT `sms_sent`.`claim`, `sms_sent`.`accepted`, `sms_sent`.`accepted_claims` FROM `sms_sent` WHERE (`sms_sent`.`id` = ?) FOR UPDATE

SELECT `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ? AND delivery_state IN ('undelivered', 'expired')) AND (`sms_sent`.`resent_at` IS NULL)) GROUP BY `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND delivery_state IN ('undelivered', 'expired')) AND (`sms_sent`.`resent_at` IS NULL)) GROUP BY `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason` ORDER BY COUNT(*) DESC LIMIT ?;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ?) AND (`sms_sent`.`import_id` IS NULL)) LIMIT ?;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ?) AND (`sms_sent`.`sent_at` < ?)) ORDER BY `sms_sent`.`sent_at`, `sms_sent`.`id` LIMIT ?;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((`sms_sent`.`id` BETWEEN ? AND ?) AND (`sms_sent`.`phone` IN (…))) ORDER BY `sms_sent`.`id`;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`campaign_id` = ?)) LIMIT ?;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`sent_at` < ?)) ORDER BY `sms_sent`.`sent_at`, `sms_sent`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms_sent"."id" FROM "sms_sent" WHERE ((delivery_state = 'awaiting' AND ("sms_sent"."provider" = $1)) AND ("sms_sent"."sent_at" < $2)) ORDER BY "sms_sent"."sent_at", "sms_sent"."id" LIMIT $3 FOR UPDATE
-- MySQL: SELECT `sms_sent`.`id` FROM `sms_sent` WHERE ((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`sent_at` < ?)) ORDER BY `sms_sent`.`sent_at`, `sms_sent`.`id` LIMIT ? FOR UPDATE

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` = ?) LIMIT ?;

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id`;
-- PostgreSQL: SELECT "sms_sent"."id" FROM "sms_sent" WHERE ("sms_sent"."id" = ANY($1)) ORDER BY "sms_sent"."id" FOR UPDATE
-- MySQL: SELECT `sms_sent`.`id` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id` FOR UPDATE

SELECT `sms_sent`.`id` FROM `sms_sent` WHERE (delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) LIMIT ?;

SELECT `sms_sent`.`id`, `campaign`.`name`, `sms_sent`.`phone`, `sms_sent`.`reference`, `sms_sent`.`provider`, `sms_sent`.`message_id` FROM (`sms_sent` INNER JOIN `campaign` ON (`campaign`.`id` = `sms_sent`.`campaign_id`)) WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id`;

SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`dedupe_key`, `sms_sent`.`segments`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state` FROM `sms_sent` WHERE (1=0) ORDER BY `sms_sent`.`id`;
-- PostgreSQL: SELECT "sms_sent"."id", "sms_sent"."campaign_id", "sms_sent"."import_id", "sms_sent"."phone", "sms_sent"."dedupe_key", "sms_sent"."segments", "sms_sent"."attempts", "sms_sent"."accepted", "sms_sent"."delivery_state" FROM "sms_sent" WHERE ("sms_sent"."id" = ANY($1)) ORDER BY "sms_sent"."id" FOR UPDATE
-- MySQL: SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`dedupe_key`, `sms_sent`.`segments`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state` FROM `sms_sent` WHERE (1=0) ORDER BY `sms_sent`.`id` FOR UPDATE

SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`dedupe_key`, `sms_sent`.`segments`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id`;
-- PostgreSQL: SELECT "sms_sent"."id", "sms_sent"."campaign_id", "sms_sent"."import_id", "sms_sent"."phone", "sms_sent"."dedupe_key", "sms_sent"."segments", "sms_sent"."attempts", "sms_sent"."accepted", "sms_sent"."delivery_state" FROM "sms_sent" WHERE ("sms_sent"."id" = ANY($1)) ORDER BY "sms_sent"."id" FOR UPDATE
-- MySQL: SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`import_id`, `sms_sent`.`phone`, `sms_sent`.`dedupe_key`, `sms_sent`.`segments`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id` FOR UPDATE

SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`phone`, `sms_sent`.`content`, `sms_sent`.`params`, `sms_sent`.`attempts`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`sent_at` FROM `sms_sent` WHERE ((((`sms_sent`.`campaign_id` = ?) AND delivery_state = 'undelivered') AND (`sms_sent`.`id` > ?)) AND (`sms_sent`.`resent_at` IS NULL)) ORDER BY `sms_sent`.`id` LIMIT ?;

SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`phone`, `sms_sent`.`provider`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`price`, `sms_sent`.`sent_at`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state`, `sms_sent`.`delivery_at` FROM `sms_sent` WHERE (((`sms_sent`.`campaign_id` = ?) AND (`sms_sent`.`sent_at` = ?)) AND (`sms_sent`.`id` > ?)) ORDER BY `sms_sent`.`id` LIMIT ?;

SELECT `sms_sent`.`id`, `sms_sent`.`campaign_id`, `sms_sent`.`phone`, `sms_sent`.`provider`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`price`, `sms_sent`.`sent_at`, `sms_sent`.`attempts`, `sms_sent`.`accepted`, `sms_sent`.`delivery_state`, `sms_sent`.`delivery_at` FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ?) AND (`sms_sent`.`sent_at` > ?)) ORDER BY `sms_sent`.`sent_at`, `sms_sent`.`id` LIMIT ?;

SELECT `sms_sent`.`id`, `sms_sent`.`message_id`, `sms_sent`.`phone`, `sms_sent`.`provider` FROM `sms_sent` WHERE ((`sms_sent`.`message_id` IN (…)) AND (`sms_sent`.`delivery_state` IS NOT NULL));

SELECT `sms_sent`.`id`, `sms_sent`.`phone` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…));

SELECT `sms_sent`.`id`, `sms_sent`.`phone`, `sms_sent`.`provider`, `sms_sent`.`reference`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`delivery_state`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`delivery_note` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id`;
-- PostgreSQL: SELECT "sms_sent"."id", "sms_sent"."phone", "sms_sent"."provider", "sms_sent"."reference", "sms_sent"."message_id", "sms_sent"."segments", "sms_sent"."delivery_state", "sms_sent"."delivery_class", "sms_sent"."delivery_code", "sms_sent"."delivery_reason", "sms_sent"."delivery_at", "sms_sent"."delivery_note" FROM "sms_sent" WHERE ("sms_sent"."id" = ANY($1)) ORDER BY "sms_sent"."id" FOR UPDATE
-- MySQL: SELECT `sms_sent`.`id`, `sms_sent`.`phone`, `sms_sent`.`provider`, `sms_sent`.`reference`, `sms_sent`.`message_id`, `sms_sent`.`segments`, `sms_sent`.`delivery_state`, `sms_sent`.`delivery_class`, `sms_sent`.`delivery_code`, `sms_sent`.`delivery_reason`, `sms_sent`.`delivery_at`, `sms_sent`.`delivery_note` FROM `sms_sent` WHERE (`sms_sent`.`id` IN (…)) ORDER BY `sms_sent`.`id` FOR UPDATE

SELECT `sms_sent`.`id`, `sms_sent`.`phone`, `sms_sent`.`reference`, `sms_sent`.`message_id`, `sms_sent`.`sent_at` FROM `sms_sent` WHERE ((((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`sent_at` >= ?)) AND (`sms_sent`.`sent_at` <= ?)) AND ((`sms_sent`.`sent_at` > ?) OR (`sms_sent`.`id` > ?))) ORDER BY `sms_sent`.`sent_at`, `sms_sent`.`id` LIMIT ?;

SELECT `sms_sent`.`id`, `sms_sent`.`reference`, `sms_sent`.`phone`, `sms_sent`.`provider` FROM `sms_sent` WHERE (((`sms_sent`.`reference` IN (…)) AND substr(reference, 17) <> CAST(id AS TEXT)) AND (`sms_sent`.`delivery_state` IS NOT NULL));
-- MySQL: SELECT `sms_sent`.`id`, `sms_sent`.`reference`, `sms_sent`.`phone`, `sms_sent`.`provider` FROM `sms_sent` WHERE (((`sms_sent`.`reference` IN (…)) AND TRUE) AND (`sms_sent`.`delivery_state` IS NOT NULL))

SELECT `sms_sent`.`id`, `sms_sent`.`reference`, `sms_sent`.`phone`, `sms_sent`.`provider` FROM `sms_sent` WHERE ((`sms_sent`.`id` IN (…)) AND (`sms_sent`.`delivery_state` IS NOT NULL));

SELECT `sms_sent`.`message_id`, `sms_sent`.`phone` FROM `sms_sent` WHERE ((`sms_sent`.`message_id` IN (…)) AND (`sms_sent`.`provider` = ?));

SELECT `sms`.`campaign_id`, `sms`.`dedupe_key` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`campaign_id`;

SELECT `sms`.`due_at` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` <= ?)) ORDER BY `sms`.`due_at` LIMIT ? OFFSET ?;

SELECT `sms`.`due_at` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) LIMIT ?;

SELECT `sms`.`due_at` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) ORDER BY `sms`.`due_at` LIMIT ?;

SELECT `sms`.`due_at` FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) LIMIT ?;

SELECT `sms`.`due_at`, `sms`.`expires_at`, `sms`.`attempts` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) ORDER BY `sms`.`due_at` LIMIT ?;

SELECT `sms`.`due_at`, `sms`.`id`, `sms`.`expires_at`, `sms`.`in_doubt` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` >= ?)) AND ((`sms`.`due_at` > ?) OR (`sms`.`id` > ?))) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms"."due_at", "sms"."id", "sms"."expires_at", "sms"."in_doubt" FROM "sms" WHERE ((((("sms"."campaign_id" = $1) AND ("sms"."state" = $2)) AND ("sms"."lane" = $3)) AND ("sms"."due_at" >= $4)) AND (("sms"."due_at" > $5) OR ("sms"."id" > $6))) ORDER BY "sms"."due_at", "sms"."id" LIMIT $7 FOR UPDATE
-- MySQL: SELECT `sms`.`due_at`, `sms`.`id`, `sms`.`expires_at`, `sms`.`in_doubt` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` >= ?)) AND ((`sms`.`due_at` > ?) OR (`sms`.`id` > ?))) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ? FOR UPDATE

SELECT `sms`.`due_at`, `sms`.`last_class`, `sms`.`last_reason` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) ORDER BY `sms`.`due_at` DESC, `sms`.`id` DESC LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((((((((`sms`.`state` = ?) AND (`sms`.`campaign_id` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND (`sms`.`doubt_since` > ?)) AND ((`sms`.`claimed_provider` IS NULL) OR (`sms`.`claimed_provider` = ?))) AND (`sms`.`attempts` < ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((((((`sms`.`state` = ?) AND (`sms`.`id` = ?)) AND (`sms`.`claim` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND (`sms`.`attempts` < ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((((((`sms`.`state` = ?) AND (`sms`.`id` = ?)) AND (`sms`.`claim` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((((`sms`.`state` = ?) AND (`sms`.`campaign_id` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((((`sms`.`state` = ?) AND (`sms`.`id` = ?)) AND (`sms`.`claim` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) AND (`sms`.`attempts` < ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`id` > ?)) AND (sms.state IN (1, 2) OR sms.in_doubt)) AND sms.reserved_month IS NULL) ORDER BY `sms`.`id` LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((((`sms`.`state` = ?) AND (`sms`.`campaign_id` = ?)) AND (`sms`.`phone` = ?)) AND (`sms`.`last_code` = ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((((`sms`.`state` = ?) AND (`sms`.`id` = ?)) AND (`sms`.`claim` = ?)) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND ((`sms`.`expires_at` IS NULL) OR (`sms`.`expires_at` > ?))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`claimed_at` < ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((`sms`.`state` = ?) AND (`sms`.`campaign_id` = ?)) AND (`sms`.`phone` = ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (((`sms`.`state` = ?) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE (`campaign`.`state` != ?)))) AND ((`sms`.`expires_at` IS NULL) OR (`sms`.`expires_at` > ?))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`import_id` IS NULL)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` IN (…))) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (`sms`.`lane` = ?));

SELECT `sms`.`id` FROM `sms` WHERE ((`sms`.`state` = ?) AND (`sms`.`campaign_id` = ?)) LIMIT ?;

SELECT `sms`.`id` FROM `sms` WHERE (`sms`.`campaign_id` = ?) LIMIT ?;

SELECT `sms`.`id`, `campaign`.`name`, `sms`.`phone`, `sms`.`reference`, `sms`.`claimed_provider`, `sms`.`last_class`, `sms`.`last_code`, `sms`.`last_reason` FROM (`sms` INNER JOIN `campaign` ON (`campaign`.`id` = `sms`.`campaign_id`)) WHERE ((`sms`.`id` IN (…)) AND (`sms`.`state` = ?)) ORDER BY `sms`.`id`;

SELECT `sms`.`id`, `sms`.`campaign_id` FROM `sms` WHERE ((((((`sms`.`id` IN (…)) AND (`sms`.`state` = ?)) AND (`sms`.`claim` BETWEEN ? AND ?)) AND ((`sms`.`unknown_at` IS NOT NULL) OR ?)) AND ((`sms`.`doubt_claim` > ?) OR ?)) AND (`sms`.`attempts` < ?)) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id" FROM "sms" WHERE (((((("sms"."id" = ANY($1)) AND ("sms"."state" = $2)) AND ("sms"."claim" BETWEEN $3 AND $4)) AND (("sms"."unknown_at" IS NOT NULL) OR $5)) AND (("sms"."doubt_claim" > $6) OR $7)) AND ("sms"."attempts" < $8)) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id` FROM `sms` WHERE ((((((`sms`.`id` IN (…)) AND (`sms`.`state` = ?)) AND (`sms`.`claim` BETWEEN ? AND ?)) AND ((`sms`.`unknown_at` IS NOT NULL) OR ?)) AND ((`sms`.`doubt_claim` > ?) OR ?)) AND (`sms`.`attempts` < ?)) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE ((1=0) AND (`sms`.`state` IN (…))) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."import_id", "sms"."dedupe_key", "sms"."state", "sms"."in_doubt" FROM "sms" WHERE (("sms"."id" = ANY($1)) AND ("sms"."state" = ANY($2))) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE ((1=0) AND (`sms`.`state` IN (…))) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (`sms`.`state` IN (…))) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."import_id", "sms"."dedupe_key", "sms"."state", "sms"."in_doubt" FROM "sms" WHERE (("sms"."id" = ANY($1)) AND ("sms"."state" = ANY($2))) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (`sms`.`state` IN (…))) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`created_at` FROM `sms` WHERE (1=0) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."import_id", "sms"."phone", "sms"."content", "sms"."params", "sms"."segments", "sms"."dedupe_key", "sms"."state", "sms"."in_doubt", "sms"."attempts", "sms"."claim", "sms"."reference", "sms"."late_accepted", "sms"."late_message_id", "sms"."late_claims", "sms"."late_provider", sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, "sms"."unknown_at", "sms"."doubt_claim", "sms"."created_at" FROM "sms" WHERE ("sms"."id" = ANY($1)) ORDER BY "sms"."id"

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`created_at` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`id`;

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`created_at` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."import_id", "sms"."phone", "sms"."content", "sms"."params", "sms"."segments", "sms"."dedupe_key", "sms"."state", "sms"."in_doubt", "sms"."attempts", "sms"."claim", "sms"."reference", "sms"."late_accepted", "sms"."late_message_id", "sms"."late_claims", "sms"."late_provider", sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, "sms"."unknown_at", "sms"."doubt_claim", "sms"."created_at" FROM "sms" WHERE ("sms"."id" = ANY($1)) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`dedupe_key`, `sms`.`state`, `sms`.`in_doubt`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`late_accepted`, `sms`.`late_message_id`, `sms`.`late_claims`, `sms`.`late_provider`, sms.late_awaits_receipt, sms.reserved, sms.reserved_earlier, sms.reserved_month, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`created_at` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` = ?)) AND (`sms`.`id` > ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."lane", "sms"."import_id", "sms"."phone", "sms"."content", "sms"."params", "sms"."segments", "sms"."in_doubt", "sms"."expires_at", "sms"."attempts", "sms"."claim", "sms"."reference", "sms"."dedupe_key", "sms"."created_at", "sms"."due_at", "sms"."doubt_since", "sms"."doubt_claim", "sms"."claimed_provider", "sms"."resend_approved" FROM "sms" WHERE ((((("sms"."campaign_id" = $1) AND ("sms"."state" = 0)) AND ("sms"."lane" = $2)) AND ("sms"."due_at" = $3)) AND ("sms"."id" > $4)) ORDER BY "sms"."due_at", "sms"."id" LIMIT $5 FOR UPDATE SKIP LOCKED
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` FORCE INDEX (`sms_due`) WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` = ?)) AND (`sms`.`id` > ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ? FOR UPDATE SKIP LOCKED

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` > ?)) AND (`sms`.`due_at` <= ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."lane", "sms"."import_id", "sms"."phone", "sms"."content", "sms"."params", "sms"."segments", "sms"."in_doubt", "sms"."expires_at", "sms"."attempts", "sms"."claim", "sms"."reference", "sms"."dedupe_key", "sms"."created_at", "sms"."due_at", "sms"."doubt_since", "sms"."doubt_claim", "sms"."claimed_provider", "sms"."resend_approved" FROM "sms" WHERE ((((("sms"."campaign_id" = $1) AND ("sms"."state" = 0)) AND ("sms"."lane" = $2)) AND ("sms"."due_at" > $3)) AND ("sms"."due_at" <= $4)) ORDER BY "sms"."due_at", "sms"."id" LIMIT $5 FOR UPDATE SKIP LOCKED
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` FORCE INDEX (`sms_due`) WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` > ?)) AND (`sms`.`due_at` <= ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ? FOR UPDATE SKIP LOCKED

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` <= ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms"."id", "sms"."campaign_id", "sms"."lane", "sms"."import_id", "sms"."phone", "sms"."content", "sms"."params", "sms"."segments", "sms"."in_doubt", "sms"."expires_at", "sms"."attempts", "sms"."claim", "sms"."reference", "sms"."dedupe_key", "sms"."created_at", "sms"."due_at", "sms"."doubt_since", "sms"."doubt_claim", "sms"."claimed_provider", "sms"."resend_approved" FROM "sms" WHERE (((("sms"."campaign_id" = $1) AND ("sms"."state" = 0)) AND ("sms"."lane" = $2)) AND ("sms"."due_at" <= $3)) ORDER BY "sms"."due_at", "sms"."id" LIMIT $4 FOR UPDATE SKIP LOCKED
-- MySQL: SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`lane`, `sms`.`import_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments`, `sms`.`in_doubt`, `sms`.`expires_at`, `sms`.`attempts`, `sms`.`claim`, `sms`.`reference`, `sms`.`dedupe_key`, `sms`.`created_at`, `sms`.`due_at`, `sms`.`doubt_since`, `sms`.`doubt_claim`, `sms`.`claimed_provider`, `sms`.`resend_approved` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = 0)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` <= ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ? FOR UPDATE SKIP LOCKED

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`attempts`, ?, `sms`.`last_code`, `sms`.`last_reason`, `sms`.`claimed_at`, `sms`.`due_at` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` = ?)) AND (`sms`.`id` > ?)) ORDER BY `sms`.`id` LIMIT ?;

SELECT `sms`.`id`, `sms`.`campaign_id`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`attempts`, ?, `sms`.`last_code`, `sms`.`last_reason`, `sms`.`claimed_at`, `sms`.`due_at` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` > ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;

SELECT `sms`.`id`, `sms`.`campaign_id`, sms.reserved, sms.reserved_earlier, sms.reserved_month FROM `sms` WHERE ((`sms`.`id` IN (…)) AND sms.reserved_month IS NOT NULL);

SELECT `sms`.`id`, `sms`.`claim`, `sms`.`attempts`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`reference`, `sms`.`claimed_at`, `sms`.`unknown_at`, `sms`.`doubt_claim`, `sms`.`doubt_since`, `sms`.`due_at`, `sms`.`lane` FROM `sms` WHERE (((((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` <= ?)) AND (`sms`.`claimed_at` <= ?)) AND ((`sms`.`claimed_provider` IS NULL) OR (`sms`.`claimed_provider` = ?))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?))) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;

SELECT `sms`.`id`, `sms`.`claim`, `sms`.`doubt_claim`, `sms`.`phone`, `sms`.`reference`, `sms`.`claimed_provider` FROM `sms` WHERE ((state = 2 AND (reference IN (…))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?)));
-- MySQL: SELECT `sms`.`id`, `sms`.`claim`, `sms`.`doubt_claim`, `sms`.`phone`, `sms`.`reference`, `sms`.`claimed_provider` FROM `sms` WHERE ((state = 2 AND (unknown_reference IN (…))) AND ((`sms`.`last_code` IS NULL) OR (`sms`.`last_code` != ?)))

SELECT `sms`.`id`, `sms`.`claim`, `sms`.`due_at` FROM `sms` WHERE ((((`sms`.`campaign_id` IN (…)) AND (`sms`.`state` = ?)) AND (`sms`.`worker_id` = ?)) AND (`sms`.`claimed_at` < ?));

SELECT `sms`.`id`, `sms`.`claim`, `sms`.`worker_id`, `sms`.`due_at` FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?));

SELECT `sms`.`id`, `sms`.`due_at`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments` FROM `sms` WHERE (((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` = ?)) AND (`sms`.`id` > ?)) ORDER BY `sms`.`id` LIMIT ?;

SELECT `sms`.`id`, `sms`.`due_at`, `sms`.`phone`, `sms`.`content`, `sms`.`params`, `sms`.`segments` FROM `sms` WHERE ((((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) AND (`sms`.`lane` = ?)) AND (`sms`.`due_at` > ?)) ORDER BY `sms`.`due_at`, `sms`.`id` LIMIT ?;

SELECT `sms`.`id`, `sms`.`in_doubt` FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) ORDER BY `sms`.`lane`, `sms`.`due_at`, `sms`.`id` LIMIT ?;
-- PostgreSQL: SELECT "sms"."id", "sms"."in_doubt" FROM "sms" WHERE (("sms"."campaign_id" = $1) AND ("sms"."state" = $2)) ORDER BY "sms"."lane", "sms"."due_at", "sms"."id" LIMIT $3 FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`in_doubt` FROM `sms` WHERE ((`sms`.`campaign_id` = ?) AND (`sms`.`state` = ?)) ORDER BY `sms`.`lane`, `sms`.`due_at`, `sms`.`id` LIMIT ? FOR UPDATE

SELECT `sms`.`id`, `sms`.`phone` FROM `sms` WHERE (`sms`.`id` IN (…));

SELECT `sms`.`id`, `sms`.`phone`, `sms`.`segments`, `sms`.`claimed_provider`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE (((`sms`.`id` IN (…)) AND (sms.state IN (1, 2) OR sms.in_doubt)) AND sms.reserved_month IS NULL) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."phone", "sms"."segments", "sms"."claimed_provider", "sms"."state", "sms"."in_doubt" FROM "sms" WHERE ((("sms"."id" = ANY($1)) AND (sms.state IN (1, 2) OR sms.in_doubt)) AND sms.reserved_month IS NULL) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`phone`, `sms`.`segments`, `sms`.`claimed_provider`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE (((`sms`.`id` IN (…)) AND (sms.state IN (1, 2) OR sms.in_doubt)) AND sms.reserved_month IS NULL) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`reference`, `sms`.`claimed_provider` FROM `sms` WHERE ((`sms`.`id` IN (…)) AND (`sms`.`state` = ?));

SELECT `sms`.`id`, `sms`.`state`, `sms`.`claim`, `sms`.`in_doubt`, `sms`.`claimed_provider`, `sms`.`worker_id`, `sms`.`reference` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`id`;
-- PostgreSQL: SELECT "sms"."id", "sms"."state", "sms"."claim", "sms"."in_doubt", "sms"."claimed_provider", "sms"."worker_id", "sms"."reference" FROM "sms" WHERE ("sms"."id" = ANY($1)) ORDER BY "sms"."id" FOR UPDATE
-- MySQL: SELECT `sms`.`id`, `sms`.`state`, `sms`.`claim`, `sms`.`in_doubt`, `sms`.`claimed_provider`, `sms`.`worker_id`, `sms`.`reference` FROM `sms` WHERE (`sms`.`id` IN (…)) ORDER BY `sms`.`id` FOR UPDATE

SELECT `sms`.`id`, `sms`.`state`, `sms`.`in_doubt` FROM `sms` WHERE ((`sms`.`id` BETWEEN ? AND ?) AND (`sms`.`phone` IN (…))) ORDER BY `sms`.`id`;

SELECT `sms`.`state`, `sms`.`content` FROM `sms` WHERE (((`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` IN (…))) AND (`sms`.`phone` = ?)) AND (`sms`.`id` != ?));

SELECT `sms`.`worker_id`, COUNT(*) FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?)) GROUP BY `sms`.`worker_id`;

SELECT `suppression`.`phone` FROM `suppression` LIMIT ?;

SELECT `suppression`.`phone` FROM `suppression` WHERE (`suppression`.`phone` IN (…));

SELECT `suppression`.`phone`, `suppression`.`reason`, `suppression`.`created_at` FROM `suppression` WHERE (`suppression`.`phone` > ?) ORDER BY `suppression`.`phone` LIMIT ?;

SELECT `worker`.`id` FROM `worker`;

SELECT `worker`.`id`, `worker`.`activity` FROM `worker` WHERE (`worker`.`activity` IS NOT NULL);

SELECT `worker`.`id`, `worker`.`heartbeat_at`, `worker`.`lease_ms` FROM `worker`;

SELECT `worker`.`id`, `worker`.`host`, `worker`.`boot_id`, `worker`.`pid_namespace`, `worker`.`pid`, `worker`.`process_started`, `worker`.`concurrency`, `worker`.`started_at`, `worker`.`heartbeat_at`, `worker`.`lease_ms`, `worker`.`machine_id`, `worker`.`token`, `worker`.`commits` FROM `worker` ORDER BY `worker`.`id`;

SELECT `worker`.`id`, `worker`.`limits` FROM `worker`;

SELECT `worker`.`id`, `worker`.`limits`, `worker`.`heartbeat_at`, `worker`.`lease_ms` FROM `worker`;

SELECT claimed_at - 1763715600000 - ((claimed_at - 1763715600000) % 1000), COUNT(*) FROM `sms` WHERE ((((`sms`.`state` = ?) AND `sms`.`campaign_id` = ?) AND (`sms`.`claimed_at` >= ?)) AND (`sms`.`claimed_at` < ?)) GROUP BY claimed_at - 1763715600000 - ((claimed_at - 1763715600000) % 1000);

SELECT claimed_at - 1763715600000 - ((claimed_at - 1763715600000) % 1000), COUNT(*) FROM `sms` WHERE ((((`sms`.`state` = ?) AND `sms`.`campaign_id` IN (SELECT id FROM campaign)) AND (`sms`.`claimed_at` >= ?)) AND (`sms`.`claimed_at` < ?)) GROUP BY claimed_at - 1763715600000 - ((claimed_at - 1763715600000) % 1000);

SELECT claimed_at FROM `sms` WHERE ((((state = 2 AND (claimed_at >= ?)) AND (claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) AND (`sms`.`campaign_id` = ?)) ORDER BY claimed_at ASC LIMIT ?;
-- MySQL: SELECT unknown_claimed_at FROM `sms` WHERE ((((state = 2 AND (unknown_claimed_at >= ?)) AND (unknown_claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) AND (`sms`.`campaign_id` = ?)) ORDER BY unknown_claimed_at ASC LIMIT ?

SELECT claimed_at FROM `sms` WHERE ((((state = 2 AND (claimed_at >= ?)) AND (claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) AND (`sms`.`campaign_id` = ?)) ORDER BY claimed_at DESC LIMIT ?;
-- MySQL: SELECT unknown_claimed_at FROM `sms` WHERE ((((state = 2 AND (unknown_claimed_at >= ?)) AND (unknown_claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) AND (`sms`.`campaign_id` = ?)) ORDER BY unknown_claimed_at DESC LIMIT ?

SELECT claimed_at FROM `sms` WHERE (((state = 2 AND (claimed_at >= ?)) AND (claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) ORDER BY claimed_at ASC LIMIT ?;
-- MySQL: SELECT unknown_claimed_at FROM `sms` WHERE (((state = 2 AND (unknown_claimed_at >= ?)) AND (unknown_claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) ORDER BY unknown_claimed_at ASC LIMIT ?

SELECT claimed_at FROM `sms` WHERE (((state = 2 AND (claimed_at >= ?)) AND (claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) ORDER BY claimed_at DESC LIMIT ?;
-- MySQL: SELECT unknown_claimed_at FROM `sms` WHERE (((state = 2 AND (unknown_claimed_at >= ?)) AND (unknown_claimed_at <= ?)) AND ((`sms`.`claimed_provider` IN (…)) OR ((`sms`.`claimed_provider` IS NULL) AND (`sms`.`campaign_id` IN (SELECT `campaign`.`id` FROM `campaign` WHERE ((`campaign`.`provider` = ?) OR ((`campaign`.`provider` IS NULL) AND ?))))))) ORDER BY unknown_claimed_at DESC LIMIT ?

SELECT failed_at - 1763715600000 - ((failed_at - 1763715600000) % 1000), COUNT(*) FROM `sms_failed` WHERE ((((`sms_failed`.`class` != ?) AND `sms_failed`.`campaign_id` = ?) AND (`sms_failed`.`failed_at` >= ?)) AND (`sms_failed`.`failed_at` < ?)) GROUP BY failed_at - 1763715600000 - ((failed_at - 1763715600000) % 1000);

SELECT failed_at - 1763715600000 - ((failed_at - 1763715600000) % 1000), COUNT(*) FROM `sms_failed` WHERE ((((`sms_failed`.`class` != ?) AND `sms_failed`.`campaign_id` IN (SELECT id FROM campaign)) AND (`sms_failed`.`failed_at` >= ?)) AND (`sms_failed`.`failed_at` < ?)) GROUP BY failed_at - 1763715600000 - ((failed_at - 1763715600000) % 1000);

SELECT max(`hook_event`.`id`) FROM `hook_event` WHERE (`hook_event`.`hook` = ?) LIMIT ?;

SELECT max(`purged`.`purged_at`) FROM `purged` WHERE 1 = 1 LIMIT ?;

SELECT max(`purged`.`purged_at`) FROM `purged` WHERE `purged`.`campaign_id` = ? LIMIT ?;

SELECT max(`sms_sent`.`sent_at`) FROM `sms_sent` WHERE (((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`sent_at` >= ?)) AND (`sms_sent`.`sent_at` <= ?)) LIMIT ?;

SELECT min(`hook_event`.`at`) FROM `hook_event` WHERE ((`hook_event`.`hook` = ?) AND (`hook_event`.`state` = ?)) LIMIT ?;

SELECT min(`hook_event`.`hook`) FROM `hook_event` WHERE (`hook_event`.`hook` > ?) LIMIT ?;

SELECT min(`hook_event`.`id`) FROM `hook_event` WHERE (`hook_event`.`id` > ?) LIMIT ?;

SELECT min(`receipt`.`due_at`) FROM `receipt` WHERE (`receipt`.`due_at` IS NOT NULL) LIMIT ?;

SELECT min(`receipt`.`id`) FROM `receipt` WHERE (`receipt`.`id` > ?) LIMIT ?;

SELECT min(`reply`.`id`) FROM `reply` WHERE (`reply`.`id` > ?) LIMIT ?;

SELECT min(`sms_failed`.`id`) FROM `sms_failed` WHERE (`sms_failed`.`id` > ?) LIMIT ?;

SELECT min(`sms_sent`.`id`) FROM `sms_sent` WHERE (`sms_sent`.`id` > ?) LIMIT ?;

SELECT min(`sms_sent`.`provider`) FROM `sms_sent` WHERE (delivery_state = 'awaiting' AND (`sms_sent`.`provider` > ?)) LIMIT ?;

SELECT min(`sms_sent`.`sent_at`) FROM `sms_sent` WHERE (((delivery_state = 'awaiting' AND (`sms_sent`.`provider` = ?)) AND (`sms_sent`.`sent_at` >= ?)) AND (`sms_sent`.`sent_at` <= ?)) LIMIT ?;

SELECT min(`sms`.`campaign_id`) FROM `sms` WHERE (`sms`.`campaign_id` > ?) LIMIT ?;

SELECT min(`sms`.`id`) FROM `sms` WHERE (`sms`.`id` > ?) LIMIT ?;

SELECT provider, MIN(phone), COUNT(*), sum(segments), sum(COALESCE(segments, 1) * accepted), sum(attempts), sum(CASE WHEN accepted > 1 THEN 1 ELSE 0 END), min(`sms_sent`.`sent_at`), max(`sms_sent`.`sent_at`) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` = ? GROUP BY provider, CASE WHEN phone LIKE '+39%' OR phone LIKE '+44%' OR phone LIKE '+47%' OR phone LIKE '+61%' OR phone LIKE '+212%' OR phone LIKE '+262%' OR phone LIKE '+290%' OR phone LIKE '+358%' OR phone LIKE '+590%' OR phone LIKE '+599%' THEN substr(phone, 1, 9) ELSE substr(phone, 1, 5) END;

SELECT provider, MIN(phone), COUNT(*), sum(segments), sum(COALESCE(segments, 1) * accepted), sum(attempts), sum(CASE WHEN accepted > 1 THEN 1 ELSE 0 END), min(`sms_sent`.`sent_at`), max(`sms_sent`.`sent_at`) FROM `sms_sent` WHERE `sms_sent`.`campaign_id` IN (SELECT id FROM campaign) GROUP BY provider, CASE WHEN phone LIKE '+39%' OR phone LIKE '+44%' OR phone LIKE '+47%' OR phone LIKE '+61%' OR phone LIKE '+212%' OR phone LIKE '+262%' OR phone LIKE '+290%' OR phone LIKE '+358%' OR phone LIKE '+590%' OR phone LIKE '+599%' THEN substr(phone, 1, 9) ELSE substr(phone, 1, 5) END;

SELECT provider, MIN(phone), sum(CASE WHEN delivery_state IN ('delivered') THEN 1 ELSE 0 END), sum(CASE WHEN delivery_state IN ('delivered', 'undelivered', 'expired') THEN 1 ELSE 0 END) FROM `sms_sent` WHERE (`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`sent_at` >= ?)) GROUP BY provider, CASE WHEN phone LIKE '+39%' OR phone LIKE '+44%' OR phone LIKE '+47%' OR phone LIKE '+61%' OR phone LIKE '+212%' OR phone LIKE '+262%' OR phone LIKE '+290%' OR phone LIKE '+358%' OR phone LIKE '+590%' OR phone LIKE '+599%' THEN substr(phone, 1, 9) ELSE substr(phone, 1, 5) END;

SELECT queue.campaign_id AS campaign_id, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = 0 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS ready_at, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 1 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS sending, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 2 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS unknown, lane.lane AS lane, lane.provider AS provider, lane.sender AS sender, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = lane.lane ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS lane_ready_at FROM (WITH RECURSIVE next (campaign_id) AS (SELECT (SELECT sms.campaign_id FROM sms ORDER BY sms.campaign_id LIMIT 1) UNION ALL SELECT (SELECT sms.campaign_id FROM sms WHERE sms.campaign_id > next.campaign_id ORDER BY sms.campaign_id LIMIT 1) FROM next WHERE next.campaign_id IS NOT NULL) SELECT campaign_id FROM next WHERE campaign_id IS NOT NULL) AS queue LEFT JOIN lane ON lane.campaign_id = queue.campaign_id UNION ALL SELECT queue.campaign_id, NULL, NULL, NULL, CAST(-queue.id AS INTEGER), '', '', (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = -queue.id ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) FROM approval AS queue WHERE queue.has_lane AND queue.state IN (0, 3, 4);
-- MySQL: SELECT queue.campaign_id AS campaign_id, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = 0 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS ready_at, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 1 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS sending, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 2 ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS unknown, lane.lane AS lane, lane.provider AS provider, lane.sender AS sender, (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = lane.lane ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) AS lane_ready_at FROM (SELECT STRAIGHT_JOIN DISTINCT campaign.id AS campaign_id FROM campaign JOIN sms ON sms.campaign_id = campaign.id) AS queue LEFT JOIN lane ON lane.campaign_id = queue.campaign_id UNION ALL SELECT queue.campaign_id, NULL, NULL, NULL, CAST(-queue.id AS SIGNED), '', '', (SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = 0 AND sms.lane = -queue.id ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1) FROM approval AS queue WHERE queue.has_lane AND queue.state IN (0, 3, 4)

SELECT sent_at - 1763715600000 - ((sent_at - 1763715600000) % 1000), COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` = ? AND (`sms_sent`.`sent_at` >= ?)) AND (`sms_sent`.`sent_at` < ?)) GROUP BY sent_at - 1763715600000 - ((sent_at - 1763715600000) % 1000);

SELECT sent_at - 1763715600000 - ((sent_at - 1763715600000) % 1000), COUNT(*) FROM `sms_sent` WHERE ((`sms_sent`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms_sent`.`sent_at` >= ?)) AND (`sms_sent`.`sent_at` < ?)) GROUP BY sent_at - 1763715600000 - ((sent_at - 1763715600000) % 1000);

SELECT sms.reserved FROM `sms` WHERE (`sms`.`campaign_id` = ? AND (`sms`.`state` = ?));

SELECT sms.reserved FROM `sms` WHERE (`sms`.`campaign_id` IN (SELECT id FROM campaign) AND (`sms`.`state` = ?));

UPDATE `activity` SET `sent` = (`activity`.`sent` + ?), `failed` = (`activity`.`failed` + ?), `unknown` = (`activity`.`unknown` + ?), `throttled` = (`activity`.`throttled` + ?), `unavailable` = (`activity`.`unavailable` + ?) WHERE ((`activity`.`at` = ?) AND ((`activity`.`campaign_id` = ?) AND (`activity`.`provider` = ?)));

UPDATE `approval` SET `decided_at` = ? WHERE (`approval`.`id` = ?);

UPDATE `approval` SET `messages` = (`approval`.`messages` + ?) WHERE (`approval`.`id` = ?);

UPDATE `approval` SET `state` = ? WHERE ((`approval`.`id` = ?) AND (`approval`.`state` = ?));

UPDATE `approval` SET `state` = ?, `decided_at` = ? WHERE (`approval`.`id` = ?);

UPDATE `approval` SET `state` = ?, `reason` = ? WHERE ((`approval`.`id` = ?) AND (`approval`.`state` = ?));

UPDATE `approval` SET `state` = ?, `reason` = ? WHERE (`approval`.`id` = ?);

UPDATE `attempt` SET `outcome` = ? WHERE (((`attempt`.`sms_id` = ?) AND (`attempt`.`slot` = ?)) AND (`attempt`.`claim` = ?));

UPDATE `audit` SET `detail` = ? WHERE (`audit`.`id` = ?);

UPDATE `campaign_watch` SET `due_since` = ?, `stuck_at` = ? WHERE (`campaign_watch`.`campaign_id` = ?);

UPDATE `campaign` SET `approval` = ? WHERE ((`campaign`.`id` = ?) AND (`campaign`.`approval` = ?));

UPDATE `campaign` SET `approval` = ?, `approval_reason` = ? WHERE (`campaign`.`id` = ?);

UPDATE `campaign` SET `budget` = ? WHERE ((`campaign`.`id` = ?) AND (1=1));
-- PostgreSQL: UPDATE "campaign" SET "budget" = $1 WHERE (("campaign"."id" = $2) AND ("campaign"."state" != ALL($3)))

UPDATE `campaign` SET `budget` = ? WHERE ((`campaign`.`id` = ?) AND (`campaign`.`budget` = ?));

UPDATE `campaign` SET `provider` = ?, `sender` = ?, `rate` = ?, `priority` = ?, `unique_by` = ?, `send_window` = ?, `budget` = ? WHERE ((`campaign`.`id` = ?) AND (1=1));
-- PostgreSQL: UPDATE "campaign" SET "provider" = $1, "sender" = $2, "rate" = $3, "priority" = $4, "unique_by" = $5, "send_window" = $6, "budget" = $7 WHERE (("campaign"."id" = $8) AND ("campaign"."state" != ALL($9)))

UPDATE `campaign` SET `provider` = ?, `sender` = ?, `rate` = ?, `priority` = ?, `unique_by` = ?, `send_window` = ?, `budget` = ? WHERE ((`campaign`.`id` = ?) AND (`campaign`.`state` NOT IN (…)));

UPDATE `campaign` SET `rate` = ? WHERE ((`campaign`.`id` = ?) AND (1=1));
-- PostgreSQL: UPDATE "campaign" SET "rate" = $1 WHERE (("campaign"."id" = $2) AND ("campaign"."state" != ALL($3)))

UPDATE `campaign` SET `state` = ?, `state_reason` = ? WHERE ((`campaign`.`id` = ?) AND (1=1));
-- PostgreSQL: UPDATE "campaign" SET "state" = $1, "state_reason" = $2 WHERE (("campaign"."id" = $3) AND ("campaign"."state" != ALL($4)))

UPDATE `campaign` SET `state` = ?, `state_reason` = ? WHERE ((`campaign`.`id` = ?) AND (`campaign`.`state` = ?));

UPDATE `campaign` SET `state` = ?, `state_reason` = ? WHERE ((`campaign`.`id` = ?) AND (`campaign`.`state` NOT IN (…)));

UPDATE `failover` SET `last_at` = ?, `reason` = ?, `messages` = (`failover`.`messages` + ?) WHERE ((`failover`.`campaign_id` = ?) AND ((`failover`.`provider` = ?) AND ((`failover`.`fallback` = ?) AND (`failover`.`since` = ?))));

UPDATE `hook_event` SET `state` = ?, `at` = ?, `attempts` = (`hook_event`.`attempts` + ?) WHERE ((`hook_event`.`id` IN (…)) AND (`hook_event`.`state` = ?));

UPDATE `hook_event` SET `state` = ?, `at` = ?, `attempts` = (`hook_event`.`attempts` + ?), `last_error` = ? WHERE ((`hook_event`.`id` = ?) AND (`hook_event`.`state` = ?));

UPDATE `hook_event` SET `state` = ?, `at` = ?, `attempts` = ? WHERE (1=0);
-- PostgreSQL: UPDATE "hook_event" SET "state" = $1, "at" = $2, "attempts" = $3 WHERE ("hook_event"."id" = ANY($4))

UPDATE `hook_event` SET `state` = ?, `at` = ?, `attempts` = ? WHERE (`hook_event`.`id` IN (…));

UPDATE `hook` SET `delivered` = (`hook`.`delivered` + ?) WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `delivered` = (`hook`.`delivered` + ?), `last_error` = ? WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `failing_since` = ? WHERE ((`hook`.`name` = ?) AND (`hook`.`failing_since` IS NULL));

UPDATE `hook` SET `failing_since` = ? WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `holder` = ?, `leased_until` = ? WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `leased_until` = ? WHERE ((`hook`.`name` = ?) AND (`hook`.`holder` = ?));

UPDATE `hook` SET `off_at` = ?, `off_reason` = ? WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `off_at` = ?, `off_reason` = ?, `failing_since` = ? WHERE (`hook`.`name` = ?);

UPDATE `hook` SET `skipped` = (`hook`.`skipped` + ?) WHERE (`hook`.`name` = ?);

UPDATE `import` SET `campaign_id` = ? WHERE (`import`.`campaign_id` = ?);

UPDATE `import` SET `finished_at` = ? WHERE ((`import`.`campaign_id` = ?) AND (`import`.`finished_at` IS NULL));

UPDATE `import` SET `finished_at` = ? WHERE ((`import`.`hash` = ?) AND (`import`.`finished_at` IS NULL));

UPDATE `import` SET `finished_at` = ? WHERE (`import`.`id` = ?);

UPDATE `import` SET `gsm7` = (`import`.`gsm7` + ?), `ucs2` = (`import`.`ucs2` + ?) WHERE (`import`.`id` = ?);

UPDATE `import` SET `last_line` = ?, `row_count` = (`import`.`row_count` + ?), `accepted` = (`import`.`accepted` + ?), `duplicates` = (`import`.`duplicates` + ?), `suppressed` = (`import`.`suppressed` + ?), `rejected` = (`import`.`rejected` + ?) WHERE ((`import`.`id` = ?) AND (`import`.`finished_at` IS NULL));

UPDATE `import` SET `replaced` = (`import`.`replaced` + ?) WHERE (`import`.`id` = ?);

UPDATE `import` SET `sample` = ? WHERE ((`import`.`id` = ?) AND (`import`.`sample` IS NOT NULL));

UPDATE `import` SET `sample` = ?, `gsm7` = (`import`.`gsm7` + ?), `ucs2` = (`import`.`ucs2` + ?) WHERE (`import`.`id` = ?);

UPDATE `import` SET `template` = ?, `gsm7` = (`import`.`gsm7` + ?), `ucs2` = (`import`.`ucs2` + ?) WHERE (`import`.`id` = ?);

UPDATE `purged` SET `campaign_id` = ? WHERE ((`purged`.`campaign_id` = ?) AND (`purged`.`import_id` != ?));

UPDATE `purged` SET `sent` = (`purged`.`sent` + ?), `failed` = (`purged`.`failed` + ?), `unknown` = (`purged`.`unknown` + ?), `cancelled` = (`purged`.`cancelled` + ?), `segments` = (`purged`.`segments` + ?), `attempts` = (`purged`.`attempts` + ?), `repeated` = (`purged`.`repeated` + ?), `delivered` = (`purged`.`delivered` + ?), `undelivered` = (`purged`.`undelivered` + ?), `expired` = (`purged`.`expired` + ?), `no_report` = (`purged`.`no_report` + ?), `purged_at` = ? WHERE ((`purged`.`campaign_id` = ?) AND (`purged`.`import_id` = ?));

UPDATE `rate_limit` SET `counted_from` = ? WHERE ((`rate_limit`.`scope` = ?) AND (`rate_limit`.`counted_from` IS NULL));

UPDATE `rate_limit` SET `counted_from` = ?, `counting` = ? WHERE (`rate_limit`.`scope` = ?);

UPDATE `rate_limit` SET `counting` = ? WHERE (((`rate_limit`.`scope` = ?) AND (`rate_limit`.`counted_from` IS NULL)) AND (`rate_limit`.`counting` IS NULL));

UPDATE `rate_limit` SET `counting` = ? WHERE (`rate_limit`.`scope` = ?);

UPDATE `rate_limit` SET `next_us` = ?, `cost_max` = ?, `buckets` = ?, `stopped_until` = ?, `stop_reason` = ? WHERE (`rate_limit`.`scope` = ?);

UPDATE `rate_limit` SET `spent` = (`rate_limit`.`spent` + ?) WHERE (`rate_limit`.`scope` = ?);

UPDATE `rate_limit` SET `spent` = (`rate_limit`.`spent` + ?), `counted_from` = ?, `counting` = ? WHERE (`rate_limit`.`scope` = ?);

UPDATE `rate_limit` SET `stopped_until` = ?, `stop_reason` = ? WHERE ((`rate_limit`.`scope` IN (…)) AND (`rate_limit`.`stopped_until` > ?));

UPDATE `receipt_pull` SET `holder` = ?, `leased_until` = ?, `position` = ? WHERE (`receipt_pull`.`provider` = ?);

UPDATE `receipt_pull` SET `leased_until` = ?, `position` = ? WHERE ((`receipt_pull`.`provider` = ?) AND (`receipt_pull`.`holder` = ?));

UPDATE `receipt_pull` SET `leased_until` = ?, `position` = ?, `pulled_at` = ? WHERE ((`receipt_pull`.`provider` = ?) AND (`receipt_pull`.`holder` = ?));

UPDATE `receipt` SET `due_at` = ? WHERE (`receipt`.`id` IN (…));

UPDATE `recipient_start` SET `ended_at` = ? WHERE (((`recipient_start`.`claim` = ?) AND (`recipient_start`.`sms_id` IN (…))) AND (`recipient_start`.`ended_at` IS NULL));

UPDATE `recipient_start` SET `ended_at` = ? WHERE (`recipient_start`.`ended_at` IS NOT NULL);

UPDATE `schedule_run` SET `asked_until` = ? WHERE ((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` = ?));

UPDATE `schedule_run` SET `error` = ? WHERE ((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` = ?));

UPDATE `schedule_run` SET `state` = ?, `finished_at` = ?, `accepted` = ? WHERE (`schedule_run`.`id` = ?);

UPDATE `schedule_run` SET `state` = ?, `finished_at` = ?, `row_count` = ?, `accepted` = ?, `suppressed` = ?, `rejected` = ?, `reasons` = ?, `error` = ? WHERE (((`schedule_run`.`schedule_id` = ?) AND (`schedule_run`.`fire` = ?)) AND (`schedule_run`.`state` != ?));

UPDATE `schedule` SET `fire` = ?, `period` = ? WHERE (`schedule`.`id` = ?);

UPDATE `schedule` SET `fire` = ?, `period` = ?, `next_at` = ?, `attempts` = ?, `leased_until` = ? WHERE (`schedule`.`id` = ?);

UPDATE `schedule` SET `holder` = ?, `leased_until` = ? WHERE (((`schedule`.`id` = ?) AND (`schedule`.`is_paused` = ?)) AND (`schedule`.`next_at` <= ?));

UPDATE `schedule` SET `is_paused` = ? WHERE ((`schedule`.`id` = ?) AND (`schedule`.`is_paused` != ?));

UPDATE `schedule` SET `is_paused` = ?, `fire` = ?, `period` = ?, `next_at` = ?, `attempts` = ? WHERE ((`schedule`.`id` = ?) AND (`schedule`.`is_paused` != ?));

UPDATE `schedule` SET `leased_until` = ? WHERE (((`schedule`.`id` = ?) AND (`schedule`.`holder` = ?)) AND (`schedule`.`leased_until` > ?));

UPDATE `schedule` SET `leased_until` = ? WHERE (`schedule`.`holder` = ?);

UPDATE `schedule` SET `next_at` = ?, `attempts` = (`schedule`.`attempts` + ?), `leased_until` = ? WHERE ((`schedule`.`id` = ?) AND (`schedule`.`fire` = ?));

UPDATE `sms_failed` SET `dedupe_key` = ? WHERE (`sms_failed`.`id` = ?);

UPDATE `sms_key` SET `is_sent` = ? WHERE ((`sms_key`.`campaign_id` = ?) AND (`sms_key`.`dedupe_key` = ?));

UPDATE `sms_sent` SET `accepted` = (`sms_sent`.`accepted` + ?), `accepted_claims` = ? WHERE (`sms_sent`.`id` = ?);

UPDATE `sms_sent` SET `delivery_state` = ?, `content` = ?, `params` = ? WHERE (1=0);
-- PostgreSQL: UPDATE "sms_sent" SET "delivery_state" = $1, "content" = $2, "params" = $3 WHERE ("sms_sent"."id" = ANY($4))

UPDATE `sms_sent` SET `delivery_state` = ?, `content` = ?, `params` = ? WHERE (`sms_sent`.`id` IN (…));

UPDATE `sms_sent` SET `resent_at` = ? WHERE (`sms_sent`.`id` IN (…));

UPDATE `sms` SET `attempts` = (`sms`.`attempts` - ?), `refunded_claim` = ?, `due_at` = ? WHERE (((((`sms`.`id` = ?) AND (`sms`.`claim` = ?)) AND (`sms`.`state` = ?)) AND (`sms`.`attempts` > ?)) AND ((`sms`.`refunded_claim` IS NULL) OR NOT ((`sms`.`refunded_claim` = ?))));

UPDATE `sms` SET `attempts` = (`sms`.`attempts` - ?), `refunded_claim` = ?, `reference` = ? WHERE (`sms`.`id` = ?);

UPDATE `sms` SET `attempts` = ?, `resend_approved` = `sms`.`in_doubt`, `reference` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`reference`) END WHERE (1=0);
-- PostgreSQL: UPDATE "sms" SET "attempts" = $1, "resend_approved" = "sms"."in_doubt", "reference" = CASE WHEN (("sms"."in_doubt" = $2)) THEN ("sms"."reference") END WHERE ("sms"."id" = ANY($3))

UPDATE `sms` SET `attempts` = ?, `resend_approved` = `sms`.`in_doubt`, `reference` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`reference`) END WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `attempts` = ?, `resend_approved` = `sms`.`in_doubt`, `reference` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`reference`) END, `expires_at` = ? WHERE (1=0);
-- PostgreSQL: UPDATE "sms" SET "attempts" = $1, "resend_approved" = "sms"."in_doubt", "reference" = CASE WHEN (("sms"."in_doubt" = $2)) THEN ("sms"."reference") END, "expires_at" = $3 WHERE ("sms"."id" = ANY($4))

UPDATE `sms` SET `attempts` = ?, `resend_approved` = `sms`.`in_doubt`, `reference` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`reference`) END, `expires_at` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `attempts` = CASE WHEN ((`sms`.`state` = ?)) THEN ((`sms`.`attempts` + ?)) ELSE (`sms`.`attempts`) END, `state` = ?, `doubt_since` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`claimed_at`) ELSE (`sms`.`doubt_since`) END, `in_doubt` = ?, `resend_approved` = ?, `unknown_at` = ?, `doubt_claim` = ?, `worker_id` = ?, `last_class` = ?, `last_code` = ?, `last_reason` = ? WHERE ((`sms`.`id` = ?) AND (((`sms`.`state` = ?) AND (`sms`.`claim` = ?)) OR ((`sms`.`state` != ?) AND ?)));

UPDATE `sms` SET `due_at` = ? WHERE ((((`sms`.`id` = ?) AND (`sms`.`claim` = ?)) AND (`sms`.`state` = ?)) AND (`sms`.`due_at` = ?));

UPDATE `sms` SET `lane` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `late_accepted` = (`sms`.`late_accepted` + ?), `late_provider` = ?, `late_message_id` = ?, `late_claims` = ? WHERE ((`sms`.`id` = ?) AND (((`sms`.`claim` = ?) AND (`sms`.`state` = 1)) AND (`sms`.`late_accepted` = ?)));

UPDATE `sms` SET `late_awaits_receipt` = ? WHERE (`sms`.`id` = ?);

UPDATE `sms` SET `phone` = ?, `content` = ?, `params` = ? WHERE (`sms`.`id` = ?);

UPDATE `sms` SET `reserved_earlier` = (`sms`.`reserved_earlier` + `sms`.`reserved`), `reserved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `reserved_earlier` = ?, `reserved_month` = ?, `reserved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `reserved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `reserved` = ?, `reserved_earlier` = ?, `reserved_month` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `reserved` = ?, `reserved_month` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `claim` = ?, `worker_id` = ?, `claimed_at` = ?, `reference` = ?, `claimed_provider` = ?, `in_doubt` = ? WHERE (`sms`.`id` = ?);

UPDATE `sms` SET `state` = ?, `claim` = CASE WHEN ((`sms`.`claim` < ?)) THEN ((`sms`.`claim` + ?)) ELSE (?) END, `worker_id` = ?, `claimed_at` = ?, `reference` = coalesce(`sms`.`reference`, concat(?, `sms`.`id`)) WHERE (((`sms`.`id` IN (…)) AND (`sms`.`state` = 0)) AND EXISTS (SELECT `worker`.`id`, `worker`.`host`, `worker`.`boot_id`, `worker`.`pid_namespace`, `worker`.`pid`, `worker`.`process_started`, `worker`.`concurrency`, `worker`.`started_at`, `worker`.`heartbeat_at`, `worker`.`lease_ms`, `worker`.`limits`, `worker`.`activity`, `worker`.`token`, `worker`.`commits`, `worker`.`machine_id` FROM `worker` WHERE (`worker`.`id` = ?)));

UPDATE `sms` SET `state` = ?, `claim` = CASE WHEN ((`sms`.`claim` < ?)) THEN ((`sms`.`claim` + ?)) ELSE (?) END, `worker_id` = ?, `claimed_at` = ?, `reference` = coalesce(`sms`.`reference`, concat(?, `sms`.`id`)), `claimed_provider` = CASE WHEN ((`sms`.`in_doubt` AND (`sms`.`claimed_provider` != ?))) THEN (?) ELSE (?) END WHERE (((`sms`.`id` IN (…)) AND (`sms`.`state` = 0)) AND EXISTS (SELECT `worker`.`id`, `worker`.`host`, `worker`.`boot_id`, `worker`.`pid_namespace`, `worker`.`pid`, `worker`.`process_started`, `worker`.`concurrency`, `worker`.`started_at`, `worker`.`heartbeat_at`, `worker`.`lease_ms`, `worker`.`limits`, `worker`.`activity`, `worker`.`token`, `worker`.`commits`, `worker`.`machine_id` FROM `worker` WHERE (`worker`.`id` = ?)));

UPDATE `sms` SET `state` = ?, `doubt_claim` = ?, `due_at` = ?, `worker_id` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `doubt_claim` = CASE WHEN ((`sms`.`doubt_claim` = ?)) THEN (`sms`.`doubt_claim`) WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`claim`) END, `unknown_at` = ?, `doubt_since` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`claimed_at`) ELSE (`sms`.`doubt_since`) END, `in_doubt` = ?, `resend_approved` = ?, `due_at` = ?, `worker_id` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ?, `attempts` = ?, `resend_approved` = ? WHERE (1=0);
-- PostgreSQL: UPDATE "sms" SET "state" = $1, "due_at" = $2, "attempts" = $3, "resend_approved" = $4 WHERE ("sms"."id" = ANY($5))

UPDATE `sms` SET `state` = ?, `due_at` = ?, `attempts` = ?, `resend_approved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ?, `attempts` = ?, `resend_approved` = ?, `expires_at` = ?, `claimed_provider` = ? WHERE (1=0);
-- PostgreSQL: UPDATE "sms" SET "state" = $1, "due_at" = $2, "attempts" = $3, "resend_approved" = $4, "expires_at" = $5, "claimed_provider" = $6 WHERE ("sms"."id" = ANY($7))

UPDATE `sms` SET `state` = ?, `due_at` = ?, `attempts` = ?, `resend_approved` = ?, `expires_at` = ?, `claimed_provider` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ?, `in_doubt` = ?, `doubt_since` = ?, `doubt_claim` = ?, `unknown_at` = ?, `resend_approved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ?, `in_doubt` = ?, `doubt_since` = ?, `doubt_claim` = ?, `unknown_at` = ?, `resend_approved` = ?, `reference` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `due_at` = ?, `worker_id` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `worker_id` = ?, `due_at` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `worker_id` = ?, `due_at` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `in_doubt` = ?, `doubt_since` = ?, `doubt_claim` = ?, `unknown_at` = ?, `resend_approved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `worker_id` = ?, `due_at` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ?, `doubt_claim` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `worker_id` = ?, `due_at` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ?, `doubt_claim` = CASE WHEN ((`sms`.`doubt_claim` = ?)) THEN (`sms`.`doubt_claim`) WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`claim`) END, `unknown_at` = ?, `doubt_since` = CASE WHEN ((`sms`.`in_doubt` = ?)) THEN (`sms`.`claimed_at`) ELSE (`sms`.`doubt_since`) END, `in_doubt` = ?, `resend_approved` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `state` = ?, `worker_id` = ?, `due_at` = ?, `attempts` = CASE WHEN ((`sms`.`attempts` < ?)) THEN ((`sms`.`attempts` + ?)) ELSE (?) END, `last_class` = ?, `last_code` = ?, `last_reason` = ?, `in_doubt` = ?, `doubt_since` = ?, `doubt_claim` = ?, `unknown_at` = ?, `resend_approved` = ?, `reference` = ? WHERE (`sms`.`id` IN (…));

UPDATE `sms` SET `unknown_at` = ?, `doubt_claim` = ? WHERE (`sms`.`id` IN (…));

UPDATE `worker` SET `activity` = ? WHERE (`worker`.`id` = ?);

UPDATE `worker` SET `commits` = ? WHERE (((`worker`.`id` = ?) AND (`worker`.`token` = ?)) AND (`worker`.`commits` BETWEEN ? AND ?));

UPDATE `worker` SET `heartbeat_at` = ? WHERE ((`worker`.`id` = ?) AND (`worker`.`token` = ?));

UPDATE `worker` SET `limits` = ? WHERE (`worker`.`id` = ?);

UPDATE sms_sent SET delivery_state = v.state, delivery_class = v.class, delivery_code = v.code, delivery_reason = v.reason, delivery_at = v.at, delivery_note = v.note, content = CASE WHEN v.state IN ('undelivered', 'expired') THEN content END, params = CASE WHEN v.state IN ('undelivered', 'expired') THEN params END FROM (SELECT value ->> 'id' AS id, value ->> 'state' AS state, value ->> 'class' AS class, value ->> 'code' AS code, value ->> 'reason' AS reason, value ->> 'at' AS at, value ->> 'note' AS note FROM json_each(?)) AS v WHERE sms_sent.id = v.id;
-- PostgreSQL: UPDATE sms_sent SET delivery_state = v.state, delivery_class = v.class, delivery_code = v.code, delivery_reason = v.reason, delivery_at = v.at, delivery_note = v.note, content = CASE WHEN v.state IN ('undelivered', 'expired') THEN content END, params = CASE WHEN v.state IN ('undelivered', 'expired') THEN params END FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS v(id BIGINT, state VARCHAR(16), class VARCHAR(255), code TEXT, reason TEXT, at BIGINT, note TEXT) WHERE sms_sent.id = v.id
-- MySQL: UPDATE sms_sent JOIN JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$.id', state VARCHAR(16) PATH '$.state', class VARCHAR(255) PATH '$.class', code TEXT PATH '$.code', reason TEXT PATH '$.reason', at BIGINT PATH '$.at', note TEXT PATH '$.note')) AS v ON sms_sent.id = v.id SET delivery_state = v.state, delivery_class = v.class, delivery_code = v.code, delivery_reason = v.reason, delivery_at = v.at, delivery_note = v.note, content = CASE WHEN v.state IN ('undelivered', 'expired') THEN content END, params = CASE WHEN v.state IN ('undelivered', 'expired') THEN params END
