//! Whether the messages of a campaign may be sent.

use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::sql_types::Integer;

use super::column_types::stored_as_number;

/// Whether a campaign's messages may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = Integer)]
pub enum CampaignStatus {
    Active = 0,
    /// By an operator or by auto-pause, until `smsq resume`.
    Paused = 1,
    /// Because its provider rejects the account or is unavailable, until the next `smsq send`.
    Stopped = 2,
    /// Until messages are imported into it again.
    Cancelled = 3,
    /// It is active, and some or all of its messages wait for the approval of a second person. This is never stored.
    Unapproved = 4,
}

impl CampaignStatus {
    pub const ALL: [Self; 5] =
        [Self::Active, Self::Paused, Self::Stopped, Self::Cancelled, Self::Unapproved];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Unapproved => "unapproved",
        }
    }

    /// An unknown state, which a newer smsq may have written, counts as paused.
    const fn of(code: i32) -> Self {
        match code {
            0 => Self::Active,
            2 => Self::Stopped,
            3 => Self::Cancelled,
            _ => Self::Paused,
        }
    }
}

stored_as_number!(CampaignStatus);
