//! The clerk's round: one transaction that settles what has ended, halts what must not go on, and
//! claims for whoever is idle. These are its words; each database has its own way to do it.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{Fill, Terms as CallTerms};
use super::pace::{provider_of, provider_scope};
use super::{CampaignState, Store, StoreError};
use crate::phone::Phone;
use crate::rate::{Rate, Rates};
use crate::sms::{Acceptance, Failure, Sms, Timestamp};

/// All that one transaction of a worker shall do.
pub struct Round {
    pub worker_id: i64,
    pub now: Timestamp,
    /// The worker's requests start within this long of their moments.
    pub reach: Duration,
    pub settlements: Vec<Settlement>,
    pub halts: Vec<Halt>,
    /// Providers that nobody may call before a moment.
    pub stops: Vec<Stop>,
    /// The clock jumped: all windows count as full.
    pub refill: bool,
    pub claims: Vec<RouteClaim>,
    /// How often one phone may be texted, over all campaigns; none: as often as there are messages.
    pub caps: Rates,
    /// Looks at a claimed message before anything is sent.
    pub admit: Arc<dyn Fn(&Sms) -> Admission + Send + Sync>,
    /// Puts the messages of one ask together into calls.
    pub fill: Arc<dyn Fn(&CallTerms<'_>) -> Fill + Send + Sync>,
}

/// Whether a claimed message can be sent at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Send {
        phone: Phone,
        segments: i32,
    },
    /// It goes back into the queue without an attempt: it is outside its window.
    Wait {
        phone: Phone,
        until: Timestamp,
    },
    /// It fails without a request, and without an attempt.
    Refuse(Failure),
}

/// What becomes of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub id: i64,
    pub claim: i64,
    /// The ledger names who took it.
    pub provider: String,
    pub fate: Fate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Sent(Acceptance),
    Failed(Failure),
    /// It fails at admission, without an attempt.
    Refused(Failure),
    /// Back into the queue. `counted`: this was an attempt.
    Ready {
        due_at: Timestamp,
        failure: Option<Failure>,
        counted: bool,
        in_doubt: bool,
    },
    Unknown(Failure),
    /// A status lookup found that the provider rejected this attempt of an unknown message, and no earlier
    /// attempt may have been accepted: it fails.
    FoundRejected(Failure),
    /// The attempt was part of an outage and is given back, from the queue or from the failed.
    Refunded,
}

impl Fate {
    /// Back into the queue as it was, until a moment.
    pub(super) const fn waits(until: Timestamp) -> Self {
        Self::Ready {
            due_at: until,
            failure: None,
            counted: false,
            in_doubt: false,
        }
    }
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The claim was no longer the row's, but the message was accepted, and that stands now.
    Late,
    /// The claim was no longer the row's: nothing was changed.
    Stale,
}

/// A provider that nobody may call for a while, because it asked for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub provider: String,
    pub until: Timestamp,
    /// What it said.
    pub reason: String,
}

/// A campaign that must not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    pub campaign_id: i64,
    pub state: CampaignState,
    pub reason: String,
}

/// What a worker wants of one provider's campaigns.
#[derive(Clone, Debug)]
pub struct RouteClaim {
    pub provider: String,
    /// It also sends the campaigns that name no provider.
    pub is_default: bool,
    /// The worker's own limits for the provider's account.
    pub limits: Vec<Rate>,
    /// Limits count segments, not messages.
    pub by_segments: bool,
    /// Moments lie between these, in microseconds of the database's clock.
    pub from_us: i64,
    pub until_us: i64,
    /// Calls that were not started and want no other moment: theirs is given back.
    pub returned: Vec<Held>,
    /// Claimed calls that lost their moment and want another.
    pub held: Vec<Held>,
    /// At most so many new rows, over all asks.
    pub want: u32,
    /// In at most so many calls.
    pub calls: u32,
    /// In the order of turns.
    pub asks: Vec<Ask>,
}

impl RouteClaim {
    /// Whether the provider of a campaign is this one.
    pub(super) fn sends(&self, provider: Option<&str>) -> bool {
        provider.map_or(self.is_default, |name| name == self.provider)
    }
}

/// What a call costs, by either way to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub messages: i32,
    pub segments: i32,
}

/// A claimed call.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub campaign_id: i64,
    pub load: Load,
    /// The moment that it had and did not use, in microseconds; it is given back.
    pub lapsed_us: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub campaign_id: i64,
    /// So many rows.
    pub at_most: u32,
    /// And so many of them in one call.
    pub per_call: u32,
}

/// When a message may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// No limit holds.
    AtOnce,
    /// In microseconds of the database's clock.
    At(i64),
}

#[derive(Clone, Debug)]
pub struct Claimed {
    pub sms: Sms,
    pub phone: Phone,
    /// The rows of one provider with the same number, which stand together, go in one call.
    pub call: u32,
    /// The call's.
    pub moment: Moment,
}

/// A campaign that gave fewer rows than it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing is due before this moment; nothing is ready at all without one.
    Until(Option<Timestamp>),
    /// It is not active.
    Halted(CampaignState, Option<String>),
    /// Another provider sends it now.
    Moved,
}

#[derive(Clone, Debug, Default)]
pub struct RouteClaimed {
    /// For each held call its new moment, where there was one before `until_us`.
    pub held: Vec<Option<Moment>>,
    pub rows: Vec<Claimed>,
    pub drained: Vec<(i64, Drained)>,
    /// The first moment that the account's limits would have had next, where they ended the claim.
    pub next_us: Option<i64>,
    /// The campaigns whose own limit ended their part, and the first moment that it would have had next.
    pub limited: Vec<(i64, i64)>,
    /// Rows that were refused at admission.
    pub refused: u64,
}

/// What a round did; `settled` and `claims` are in the order of the round's.
#[derive(Clone, Debug, Default)]
pub struct RoundDone {
    pub settled: Vec<Settled>,
    pub claims: Vec<RouteClaimed>,
    /// The worker is not on the list: another one has declared it dead. It got nothing.
    pub is_unlisted: bool,
}

impl Store {
    /// Does the round in one transaction.
    pub async fn round(&self, round: Arc<Round>) -> Result<RoundDone, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.round(round).await,
            Self::Server(server) => server.round(round).await,
        }
    }

    /// The providers that are not to be called at this moment.
    pub async fn stops(&self, now: Timestamp) -> Result<Vec<Stop>, StoreError> {
        use super::schema::pace;
        use diesel::prelude::*;
        use diesel_async::RunQueryDsl;
        let rows: Vec<(String, i64, Option<String>)> = reading!(self, |conn| pace::table
            .filter(pace::stopped_until.gt(now.as_millis()))
            .order(pace::scope)
            .select((pace::scope, pace::stopped_until, pace::stop_reason))
            .load(conn))?;
        let stop = |(scope, until, reason): (String, i64, Option<String>)| Stop {
            provider: provider_of(&scope).to_owned(),
            until: Timestamp::from_millis(until),
            reason: reason.unwrap_or_default(),
        };
        Ok(rows.into_iter().map(stop).collect())
    }

    /// Calls the provider again at once; false where it was not stopped.
    pub async fn end_stop(&self, provider: &str, now: Timestamp) -> Result<bool, StoreError> {
        use super::schema::pace;
        use diesel::prelude::*;
        use diesel_async::RunQueryDsl;
        let rows: usize = writing!(self, |conn| diesel::update(
            pace::table
                .find(provider_scope(provider))
                .filter(pace::stopped_until.gt(now.as_millis()))
        )
        .set((
            pace::stopped_until.eq(0),
            pace::stop_reason.eq(None::<String>)
        ))
        .execute(conn))?;
        Ok(rows > 0)
    }
}
