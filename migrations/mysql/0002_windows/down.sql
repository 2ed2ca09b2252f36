DROP TABLE recipient_start;
ALTER TABLE campaign DROP COLUMN send_window;
