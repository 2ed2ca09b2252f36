-- A run that somebody asked for was interrupted if this passes while it is in progress.
ALTER TABLE schedule_run ADD COLUMN asked_until BIGINT;
