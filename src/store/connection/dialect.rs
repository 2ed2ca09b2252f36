//! The SQL of each engine: the differences that the queries of the store have.

/// The SQL that a database understands. MySQL and MariaDB share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// The backend of every query of the store.
#[derive(Clone, Copy, Debug)]
pub struct AnyEngine(pub(super) Dialect);

impl AnyEngine {
    pub(super) fn of(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Sqlite => &Self(Dialect::Sqlite),
            Dialect::Postgres => &Self(Dialect::Postgres),
            Dialect::Mysql => &Self(Dialect::Mysql),
        }
    }
}

impl Dialect {
    /// The quote of identifiers.
    pub(super) fn quote(self) -> char {
        match self {
            Self::Postgres => '"',
            Self::Sqlite | Self::Mysql => '`',
        }
    }

    /// The names of the columns by which unknown messages are indexed, for conditions together with `state = 2`: reference and
    /// when they were claimed. MySQL has no indexes of a part of a table, so it has columns for them.
    pub(crate) fn unknown_columns(self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite | Self::Postgres => ("reference", "claimed_at"),
            Self::Mysql => ("unknown_reference", "unknown_claimed_at"),
        }
    }

    /// The condition of the index of references, for a condition on `reference` in `sms_sent`: another program wrote it.
    pub(crate) fn other_reference(self) -> &'static str {
        match self {
            Self::Sqlite | Self::Postgres => "substr(reference, 17) <> CAST(id AS TEXT)",
            Self::Mysql => "TRUE",
        }
    }

    /// A statement that updates rows by their ids from a list of JSON objects, its parameter. `set` assigns their
    /// members, columns of `v`; `members` are their names and types.
    pub(crate) fn update_from_json(
        self,
        table: &str,
        set: &str,
        members: &[(&str, &str)],
    ) -> String {
        let list = |member: fn(&str, &str) -> String| {
            let written: Vec<String> =
                members.iter().map(|(name, kind)| member(name, kind)).collect();
            written.join(", ")
        };
        match self {
            Self::Sqlite => {
                let members = list(|name, _| format!("value ->> '{name}' AS {name}"));
                let values = format!("(SELECT {members} FROM json_each(?)) AS v");
                format!("UPDATE {table} SET {set} FROM {values} WHERE {table}.id = v.id")
            }
            Self::Postgres => {
                let members = list(|name, kind| format!("{name} {kind}"));
                let values = format!("jsonb_to_recordset(CAST($1 AS jsonb)) AS v({members})");
                format!("UPDATE {table} SET {set} FROM {values} WHERE {table}.id = v.id")
            }
            Self::Mysql => {
                let members = list(|name, kind| format!("{name} {kind} PATH '$.{name}'"));
                let values = format!("JSON_TABLE(?, '$[*]' COLUMNS ({members})) AS v");
                format!("UPDATE {table} JOIN {values} ON {table}.id = v.id SET {set}")
            }
        }
    }

    /// A table `queue` of the ids of the campaigns that table `sms` has, without reading each of its rows.
    pub(crate) fn campaigns_in_queue(self) -> &'static str {
        match self {
            // From each id to the next one in the index.
            Self::Sqlite | Self::Postgres => {
                "(WITH RECURSIVE next (campaign_id) AS (\
                 SELECT (SELECT sms.campaign_id FROM sms ORDER BY sms.campaign_id LIMIT 1) \
                 UNION ALL \
                 SELECT (SELECT sms.campaign_id FROM sms WHERE sms.campaign_id > next.campaign_id \
                 ORDER BY sms.campaign_id LIMIT 1) FROM next WHERE next.campaign_id IS NOT NULL) \
                 SELECT campaign_id FROM next WHERE campaign_id IS NOT NULL) AS queue"
            }
            // A range of the index cannot depend on another row, and a grouped query reads the whole index where there
            // are no statistics. This reads the first message of each campaign.
            Self::Mysql => {
                "(SELECT STRAIGHT_JOIN DISTINCT campaign.id AS campaign_id FROM campaign \
                 JOIN sms ON sms.campaign_id = campaign.id) AS queue"
            }
        }
    }

    /// A number as an integer of 32 bits.
    pub(crate) fn integer(self, expression: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("CAST({expression} AS INTEGER)"),
            // MySQL has no such type here, and reads a wider one.
            Self::Mysql => format!("CAST({expression} AS SIGNED)"),
        }
    }
}
