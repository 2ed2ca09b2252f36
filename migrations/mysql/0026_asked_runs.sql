-- A run that somebody asked for was interrupted if this passes while it is in progress.
SET @smsq_add = IF(
    (SELECT count(*) FROM information_schema.columns
     WHERE table_schema = database() AND table_name = 'schedule_run' AND column_name = 'asked_until') = 0,
    'ALTER TABLE schedule_run ADD COLUMN asked_until BIGINT',
    'DO 0');
PREPARE smsq_add FROM @smsq_add;
EXECUTE smsq_add;
DEALLOCATE PREPARE smsq_add;
