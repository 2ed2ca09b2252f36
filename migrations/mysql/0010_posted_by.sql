-- The name of the token with which its messages were posted or uploaded.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'import' AND column_name = 'posted_by') = 0,
    'ALTER TABLE import
        ADD COLUMN posted_by VARCHAR(255)',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
