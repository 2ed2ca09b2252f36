-- Whether the messages of this database are practice: no phone gets any of them. One row, which is written when the
-- table is created and never changed.
CREATE TABLE database_mode (
    id          INTEGER PRIMARY KEY,
    is_practice BOOLEAN NOT NULL
);
INSERT INTO database_mode (id, is_practice) VALUES (1, FALSE);
