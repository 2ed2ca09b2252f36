//! What a round finds for whoever asks: rows that can be sent, held but not yet claimed; those that cannot
//! be sent are refused on the way.

use std::collections::{BTreeSet, HashMap, HashSet};

use diesel::QueryResult;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::claim::{self, Candidate, Floors, Marks};
use super::known::is_suppressing;
use super::link::{Link, on};
use super::pace::Estimate;
use super::recipients::Recipients;
use crate::queue::batch;
use crate::queue::{Admission, CampaignClaim, ProviderClaim, Settlement, Transition};
use crate::rate::Rates;
use crate::sms::{Class, Failure};
use crate::store::CampaignStatus;
use crate::store::queue::{CommitBatch, Shortfall};
use crate::store::schema::{campaign, suppression};

/// Rows that one ask may refuse in one round, so that a round stays short.
const REFUSALS: u64 = 1_000;

/// A campaign as a claim needs it.
pub(super) struct Standing {
    pub(super) state: CampaignStatus,
    pub(super) reason: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) limits: Rates,
}

type CampaignRow = (i64, i32, Option<String>, String, Option<String>);

pub(super) async fn campaigns(
    link: &mut Link,
    round: &CommitBatch,
) -> QueryResult<HashMap<i64, Standing>> {
    let ids: BTreeSet<i64> = round
        .claims
        .iter()
        .flat_map(|route| {
            let held = route.held.iter().chain(&route.released);
            let held = held.map(|held| held.campaign_id);
            held.chain(route.campaigns.iter().map(|ask| ask.campaign_id))
        })
        .collect();
    let rows: Vec<CampaignRow> = on!(link, |conn| campaign::table
        .filter(campaign::id.eq_any(&ids))
        .select((
            campaign::id,
            campaign::state,
            campaign::state_reason,
            campaign::rate,
            campaign::provider,
        ))
        .load(conn))?;
    Ok(rows
        .into_iter()
        .map(|(id, state, reason, rate, provider)| {
            let standing = Standing {
                state: CampaignStatus::of(state),
                reason,
                provider,
                limits: rate.parse().unwrap_or_default(),
            };
            (id, standing)
        })
        .collect())
}

/// What one route found, in the order of turns.
#[derive(Default)]
pub(super) struct Found {
    pub(super) asked: Vec<Asked>,
    pub(super) halted: Vec<(i64, Shortfall)>,
    pub(super) refused: u64,
}

/// What one ask for `count` messages found: as many that can be sent as there seemed to be permits for.
pub(super) struct Asked {
    pub(super) ask: CampaignClaim,
    pub(super) count: u32,
    pub(super) ready: Vec<Ready>,
    /// There were no more.
    pub(super) is_short: bool,
}

/// What becomes of a row that was found.
enum Admitted {
    Ready(Box<Ready>),
    Refused,
    /// It goes back into the queue.
    Waits,
}

/// A message that can be sent, held but not yet claimed, with its place in the order of claims.
type Ready = batch::BatchItem<(i64, i64)>;

/// Looks for rows for whoever asks; the same campaign may be asked twice.
pub(super) struct Search<'a> {
    pub(super) round: &'a CommitBatch,
    pub(super) campaigns: &'a HashMap<i64, Standing>,
    pub(super) floors: &'a Floors,
    pub(super) skips_locked: bool,
    pub(super) nonce: &'a str,
    /// Whether the suppression list has anybody on it, once that was asked.
    pub(super) suppressing: Option<bool>,
    /// The last key found of each campaign: a row that is held already must not be found again.
    pub(super) held: HashMap<i64, (i64, i64)>,
    pub(super) marks: Marks,
    pub(super) recipients: Recipients,
}

impl Search<'_> {
    pub(super) async fn run(
        &mut self,
        link: &mut Link,
        route: &ProviderClaim,
        estimate: &mut Estimate,
    ) -> QueryResult<Found> {
        let mut found = Found::default();
        let mut want = route.max_messages;
        for ask in &route.campaigns {
            if want == 0 {
                break;
            }
            let Some(standing) = self.campaigns.get(&ask.campaign_id) else {
                continue;
            };
            if standing.state != CampaignStatus::Active {
                let halted = Shortfall::Halted(standing.state, standing.reason.clone());
                found.halted.push((ask.campaign_id, halted));
                continue;
            }
            if !route.serves(standing.provider.as_deref()) {
                found.halted.push((ask.campaign_id, Shortfall::Moved));
                continue;
            }
            let count = want.min(ask.max_messages);
            // Rows that will get no permit must not use up what others could have.
            let permits = estimate.permits(*ask, count);
            let asked = self
                .ask(link, *ask, (count, permits), &mut found.refused)
                .await?;
            for ready in &asked.ready {
                estimate.take(ask.campaign_id, ready.segments);
            }
            want -= u32::try_from(asked.ready.len()).unwrap_or(want).min(want);
            found.asked.push(asked);
        }
        Ok(found)
    }

    async fn ask(
        &mut self,
        link: &mut Link,
        ask: CampaignClaim,
        (count, permits): (u32, u32),
        refused: &mut u64,
    ) -> QueryResult<Asked> {
        let campaign_id = ask.campaign_id;
        let mut asked = Asked {
            ask,
            count,
            ready: Vec::new(),
            is_short: false,
        };
        let mut passed_over = 0;
        while asked.ready.len() < permits as usize && passed_over < REFUSALS {
            let missing = permits - u32::try_from(asked.ready.len()).unwrap_or(permits);
            let wanted = claim::Wanted {
                campaign_id,
                now: self.round.now,
                after: self.held.get(&campaign_id).copied(),
                count: missing,
            };
            let rows = claim::due(link, self.floors, self.skips_locked, wanted).await?;
            asked.is_short = rows.len() < missing as usize;
            if let Some(key) = rows.iter().map(Candidate::key).max() {
                self.held.insert(campaign_id, key);
            }
            let suppressed = self.suppressed(link, &rows).await?;
            if self.recipients.are_capped() {
                let phones = self.phones(&rows);
                self.recipients.look(link, self.round, phones).await?;
            }
            for row in rows {
                match self.admit(row, &suppressed) {
                    Admitted::Ready(ready) => asked.ready.push(*ready),
                    Admitted::Waits => passed_over += 1,
                    Admitted::Refused => {
                        passed_over += 1;
                        *refused += 1;
                    }
                }
            }
            if asked.is_short {
                break;
            }
        }
        Ok(asked)
    }

    /// Which of these rows' phones nothing is sent to.
    async fn suppressed(
        &mut self,
        link: &mut Link,
        rows: &[Candidate],
    ) -> QueryResult<HashSet<String>> {
        if rows.is_empty() {
            return Ok(HashSet::new());
        }
        let suppressing = match self.suppressing {
            Some(suppressing) => suppressing,
            None => is_suppressing(link).await?,
        };
        self.suppressing = Some(suppressing);
        if !suppressing {
            return Ok(HashSet::new());
        }
        let phones = self.phones(rows);
        let listed: Vec<String> = on!(link, |conn| suppression::table
            .filter(suppression::phone.eq_any(&phones))
            .select(suppression::phone)
            .load(conn))?;
        Ok(listed.into_iter().collect())
    }

    /// Of the rows that are not refused.
    fn phones(&self, rows: &[Candidate]) -> Vec<String> {
        let admissions = rows
            .iter()
            .map(|row| (self.round.admit)(&row.clone().claimed("")));
        admissions
            .filter_map(|admission| match admission {
                Admission::Send { phone, .. } | Admission::Wait { phone, .. } => {
                    Some(phone.as_str().to_owned())
                }
                Admission::Fail(_) => None,
            })
            .collect()
    }

    /// A message that can be sent; any other is claimed, and settled with the round.
    fn admit(&mut self, row: Candidate, suppressed: &HashSet<String>) -> Admitted {
        let is_garbled = row.is_garbled();
        let key = row.key();
        let sms = row.claimed(self.nonce);
        let admission = if is_garbled {
            self.marks.rewritten.push(sms.clone());
            let why = "another program wrote it, and not in UTF-8";
            Admission::Fail(Failure::new(Class::Content, why))
        } else {
            (self.round.admit)(&sms)
        };
        let admission = match admission {
            Admission::Send { phone, .. } | Admission::Wait { phone, .. }
                if suppressed.contains(phone.as_str()) =>
            {
                self.marks.note_phone(&sms, &phone);
                let why = "the phone is on the suppression list";
                Admission::Fail(Failure::new(Class::Suppressed, why))
            }
            Admission::Send { phone, segments } => {
                match self.recipients.keep_cap(&sms, &phone, self.round) {
                    Some(Admission::Fail(failure)) => {
                        self.marks.note_phone(&sms, &phone);
                        Admission::Fail(failure)
                    }
                    Some(kept) => kept,
                    None => Admission::Send { phone, segments },
                }
            }
            other => other,
        };
        if let (Admission::Wait { phone, .. }, false) = (&admission, is_garbled) {
            self.marks.note_phone(&sms, phone);
        }
        let (transition, admitted) = match admission {
            Admission::Send { phone, segments } => {
                return Admitted::Ready(Box::new(batch::BatchItem {
                    key,
                    sms,
                    phone,
                    segments,
                }));
            }
            Admission::Wait { until, .. } => (Transition::wait_until(until), Admitted::Waits),
            Admission::Fail(failure) => (Transition::NotAdmitted(failure), Admitted::Refused),
        };
        self.marks.ids.push(sms.id);
        self.marks.passed_over.push(Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: String::new(),
            transition,
        });
        admitted
    }
}
