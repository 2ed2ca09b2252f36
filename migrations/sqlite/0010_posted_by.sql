-- The name of the token with which its messages were posted or uploaded.
ALTER TABLE import ADD COLUMN posted_by TEXT;
