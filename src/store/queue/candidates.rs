//! Finds due messages that can be sent, and locks them without claiming them. Messages that cannot be sent fail or
//! wait.

use crate::connection::QueryResult;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use smsq_lifecycle::batch::BatchItem;
use smsq_lifecycle::{Admission, LaneClaim, ProviderClaim, Settlement, Transition};
use smsq_message::phone::Phone;
use smsq_message::route::{CONTENT, Division};
use smsq_message::sms::{Class, Failure, LaneId, Sms, Timestamp};

use super::claim::{self, Candidate, ClaimCursors, ClaimWrites};
use super::commit_batch::{ClaimKey, ClaimedCampaign, CommitBatch};
use super::lanes::Failover;
use super::permits::budgets::Budgets;
use super::permits::caps::Recipients;
use super::permits::limits::PermitEstimate;
use crate::campaigns::approvals::{self, ApprovalChanges, GrantedLane};
use crate::connection::Connection;
use crate::recipients::{dead, suppression};

/// The most messages of one campaign that may fail or wait in one transaction, so that it stays short.
const MAX_NOT_SENT: usize = 1_000;
/// The most messages that one transaction moves from a lane that is divided.
const MAX_DIVIDED: u32 = 1_000;
/// When a message is looked at again whose senders are all switched off.
const SWITCHED_OFF: Duration = Duration::from_secs(60);
/// The same for a message that waits for the provider that may have it, which may be available again soon.
const PROVIDER_AWAY: Duration = Duration::from_secs(5);

/// The candidates of one provider, in the order of its lanes.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) of_lanes: Vec<LaneCandidates>,
    /// Lanes of campaigns that are not active, or that another provider sends; and divided lanes without messages.
    pub(super) exhausted: Vec<LaneId>,
    /// Lanes that got messages of divided lanes.
    pub(super) divided: BTreeSet<LaneId>,
    /// The last key of each divided lane that was read.
    pub(super) read: HashMap<LaneId, ClaimKey>,
    pub(super) refused: u64,
}

/// The candidates of one lane: at most as many as the estimate of permits.
pub(super) struct LaneCandidates {
    pub(super) lane: LaneClaim,
    pub(super) wanted: u32,
    pub(super) items: Vec<BatchItem<ClaimKey>>,
    /// There are no other candidates.
    pub(super) is_short: bool,
    /// Lanes that got messages of this one, which another provider of the route may have accepted.
    moved_to: BTreeSet<LaneId>,
}

/// Which columns a message has. Whether its text can be sent is decided when it is claimed.
fn columns_of(sms: &Sms) -> impl Fn(&str) -> bool {
    let parsed: OnceCell<serde_json::Map<String, Value>> = OnceCell::new();
    move |column| {
        let params = parsed.get_or_init(|| serde_json::from_str(&sms.params).unwrap_or_default());
        column == CONTENT || params.get(column).is_some_and(|value| !value.is_null())
    }
}

/// A message that is moved from its lane to another, if that is because its provider is unavailable.
fn failover(division: &Division, from: LaneId, lane: i32, now: Timestamp) -> Option<Failover> {
    let (owner, fallback) = (division.owner(from.lane)?, division.owner(lane)?);
    let outage = owner.outage?;
    Some(Failover {
        campaign_id: from.campaign_id,
        provider: owner.provider.to_owned(),
        fallback: fallback.provider.to_owned(),
        since: outage.since,
        last_at: now,
        reason: outage.reason.clone(),
        messages: 1,
    })
}

/// Finds candidates for all providers of a commit, which may claim from the same campaign.
pub(super) struct Search<'a> {
    pub(super) batch: &'a CommitBatch,
    pub(super) campaigns: &'a HashMap<i64, ClaimedCampaign>,
    pub(super) cursors: &'a ClaimCursors,
    /// Whether the suppression list has any phone.
    pub(super) has_suppressed: bool,
    /// Numbers that were found not to exist since then get no messages of other programs; `None`: they do.
    pub(super) dead_since: Option<Timestamp>,
    /// The last key locked of each lane.
    pub(super) locked: HashMap<LaneId, ClaimKey>,
    pub(super) writes: ClaimWrites,
    pub(super) recipients: Recipients,
    pub(super) budgets: Budgets,
    /// The approvals of lanes, by their numbers.
    pub(super) granted: HashMap<i32, GrantedLane>,
    pub(super) approvals: ApprovalChanges,
}

impl Search<'_> {
    pub(super) async fn run(
        &mut self,
        connection: &mut Connection,
        claim: &ProviderClaim,
        estimate: &mut PermitEstimate<'_>,
    ) -> QueryResult<Candidates> {
        let mut found = Candidates::default();
        let mut left = claim.max_messages;
        for lane in &claim.lanes {
            if left == 0 {
                break;
            }
            let Some(row) = self.campaigns.get(&lane.id.campaign_id) else {
                continue;
            };
            if !row.is_active() || !claim.serves(row.provider.as_deref()) {
                found.exhausted.push(lane.id);
                continue;
            }
            if lane.is_divided {
                self.divide(connection, lane, &claim.provider, &mut found).await?;
                continue;
            }
            let mut of_lane = LaneCandidates {
                lane: lane.clone(),
                wanted: left.min(lane.max_messages),
                items: Vec::new(),
                is_short: false,
                moved_to: BTreeSet::new(),
            };
            // Messages without a permit must not take the place of messages of other lanes.
            let permits = estimate.available(lane, of_lane.wanted);
            let paid = self.budgets.available(claim, lane.id.campaign_id, permits);
            self.find(connection, &mut of_lane, claim, paid, &mut found.refused).await?;
            for item in &of_lane.items {
                estimate.take(lane, item.segments);
            }
            let count = u32::try_from(of_lane.items.len()).unwrap_or(left);
            left = left.saturating_sub(count);
            found.divided.append(&mut of_lane.moved_to);
            found.of_lanes.push(of_lane);
        }
        Ok(found)
    }

    /// Moves the next messages of a lane to the lanes of their senders: it is not divided, or its sender is switched off,
    /// or its provider is unavailable. Messages that no sender sends fail. A message that a provider may have accepted
    /// stays with that provider.
    async fn divide(
        &mut self,
        connection: &mut Connection,
        lane: &LaneClaim,
        provider: &str,
        found: &mut Candidates,
    ) -> QueryResult<()> {
        let id = lane.id;
        let divisions = &self.batch.admission.divisions;
        let Some(division) = divisions.get(&id.campaign_id).map(Arc::clone) else {
            return Ok(());
        };
        let wanted = claim::Wanted {
            lane: id,
            now: self.batch.now,
            after: self.locked.get(&id).copied(),
            count: lane.max_messages.min(MAX_DIVIDED),
        };
        let rows = claim::next_candidates(connection, self.cursors, wanted).await?;
        if rows.len() < wanted.count as usize {
            found.exhausted.push(id);
        }
        if let Some(key) = rows.iter().map(Candidate::key).max() {
            self.locked.insert(id, key);
            found.read.insert(id, key);
        }
        for row in self.approved(id, rows) {
            let bound = row.bound_to().map(str::to_owned);
            let of = bound.as_deref().unwrap_or(provider);
            let (_, sms, admission) = self.admit(row, of);
            let phone = match admission {
                Admission::Send { phone, .. } | Admission::Wait { phone, .. } => phone,
                Admission::Fail(failure) => {
                    found.refused += 1;
                    self.not_sent(&sms, Transition::NotAdmitted(failure));
                    continue;
                }
            };
            self.writes.rewrite_phone(&sms, &phone);
            let of_message = division.with_columns(columns_of(&sms));
            let lane = match &bound {
                Some(provider) => of_message.lane_at(provider, phone.as_str()),
                None => of_message.lane_of(phone.as_str()),
            };
            if let Some(lane) = lane.filter(|lane| *lane != id.lane) {
                self.writes.move_to(lane, sms.id);
                found.divided.insert(LaneId { lane, ..id });
                if let Some(moved) = failover(&division, id, lane, self.batch.now) {
                    self.writes.count_failover(moved);
                }
            } else if lane.is_some() {
                // All its senders are switched off, or its provider is unavailable.
                let is_away = division.owner(id.lane).is_some_and(|owner| owner.outage.is_some());
                let wait = if is_away { PROVIDER_AWAY } else { SWITCHED_OFF };
                let until = self.batch.now.plus(wait);
                self.not_sent(&sms, Transition::wait_until(until));
            } else {
                found.refused += 1;
                let why = of_message.route().no_sender(phone.as_str());
                let failure = Failure::new(Class::Recipient, why);
                self.not_sent(&sms, Transition::NotAdmitted(failure));
            }
        }
        Ok(())
    }

    /// Those of the messages that may start: not what needs approval. Where the approval of a lane has ended, nothing of
    /// it starts; what another program inserted into a guarded campaign waits in a lane of its own from now on.
    fn approved(&mut self, lane: LaneId, mut rows: Vec<Candidate>) -> Vec<Candidate> {
        let campaign_id = lane.campaign_id;
        if approvals::of_lane(lane.lane).is_some() {
            let due = rows.iter().map(|row| Timestamp::from_millis(row.key().0));
            let granted = self.granted.get(&lane.lane);
            if !self.approvals.check(lane, granted, due, self.batch.now) {
                rows.clear();
            }
        } else if lane == LaneId::undivided(campaign_id) && self.is_guarded(campaign_id) {
            let (imported, inserted): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(Candidate::is_imported);
            for row in inserted {
                self.approvals.hold(row.key().1, campaign_id);
            }
            rows = imported;
        }
        rows
    }

    fn is_guarded(&self, campaign_id: i64) -> bool {
        let campaign = self.campaigns.get(&campaign_id);
        campaign.is_some_and(|campaign| campaign.approval.is_guarded())
    }

    /// Claims a message, and settles it without a request.
    fn not_sent(&mut self, sms: &Sms, transition: Transition) {
        self.writes.claim(sms.id, None);
        self.writes.not_sent.push(Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: String::new(),
            transition,
        });
    }

    async fn find(
        &mut self,
        connection: &mut Connection,
        found: &mut LaneCandidates,
        claim: &ProviderClaim,
        permits: u32,
        refused: &mut u64,
    ) -> QueryResult<()> {
        let id = found.lane.id;
        let mut not_sent = 0;
        while found.items.len() < permits as usize && not_sent < MAX_NOT_SENT && !found.is_short {
            let missing = permits - u32::try_from(found.items.len()).unwrap_or(permits);
            let wanted = claim::Wanted {
                lane: id,
                now: self.batch.now,
                after: self.locked.get(&id).copied(),
                count: missing,
            };
            let rows = claim::next_candidates(connection, self.cursors, wanted).await?;
            found.is_short = rows.len() < missing as usize;
            if let Some(key) = rows.iter().map(Candidate::key).max() {
                self.locked.insert(id, key);
            }
            let count = rows.len();
            let rows = self.approved(id, rows);
            not_sent += count - rows.len();
            let mut admitted = Vec::new();
            for row in rows {
                match self.lane_of_bound(&row, id, &claim.provider) {
                    Some(lane) => {
                        self.writes.move_to(lane.lane, row.key().1);
                        found.moved_to.insert(lane);
                    }
                    None => admitted.push(self.admit(row, &claim.provider)),
                }
            }
            let phones = admitted.iter().filter_map(|(_, _, admission)| admission.phone());
            let phones: Vec<String> = phones.map(|phone| phone.as_str().to_owned()).collect();
            let suppressed = self.suppressed(connection, &phones).await?;
            let dead = self.dead(connection, &admitted).await?;
            self.recipients.read(connection, self.batch, phones).await?;
            for (key, sms, admission) in admitted {
                let admission = self.check_recipient(&sms, admission, &suppressed, &dead);
                let admission = self.budgets.check_price(claim, id.campaign_id, admission);
                let transition = match admission {
                    Admission::Send { phone, segments } => {
                        found.items.push(BatchItem { key, sms, phone, segments });
                        continue;
                    }
                    Admission::Wait { phone, until } => {
                        self.writes.rewrite_phone(&sms, &phone);
                        Transition::wait_until(until)
                    }
                    Admission::Fail(failure) => {
                        *refused += 1;
                        Transition::NotAdmitted(failure)
                    }
                };
                not_sent += 1;
                self.not_sent(&sms, transition);
            }
        }
        Ok(())
    }

    /// The lane of the other provider of the route that may have accepted a message of this one: its campaign was sent by
    /// that provider alone before.
    fn lane_of_bound(&self, row: &Candidate, id: LaneId, provider: &str) -> Option<LaneId> {
        let bound = row.bound_to().filter(|bound| *bound != provider)?;
        let division = self.batch.admission.divisions.get(&id.campaign_id)?;
        let lane = division.lane_at(bound, row.phone())?;
        (lane != id.lane).then_some(LaneId { lane, ..id })
    }

    /// Checks whether the message can be sent, by its own row.
    fn admit(&mut self, row: Candidate, provider: &str) -> (ClaimKey, Sms, Admission) {
        let (key, is_garbled, is_imported) = (row.key(), row.is_garbled(), row.is_imported());
        let sms = row.claimed(&self.writes.nonce, provider);
        let admission = if is_garbled {
            self.writes.rewrite(&sms);
            let why = "another program wrote text that is not UTF-8";
            Admission::Fail(Failure::new(Class::Content, why))
        } else {
            let CommitBatch { now, tolerance, .. } = *self.batch;
            self.batch.admission.admit(&sms, provider, is_imported, now, tolerance.total)
        };
        (key, sms, admission)
    }

    /// Those of the phones that are on the suppression list.
    async fn suppressed(
        &mut self,
        connection: &mut Connection,
        phones: &[String],
    ) -> QueryResult<HashSet<String>> {
        if phones.is_empty() || !self.has_suppressed {
            return Ok(HashSet::new());
        }
        let listed = suppression::among(connection, phones.iter().map(String::as_str)).await?;
        Ok(listed.into_iter().collect())
    }

    /// The phones of messages that no import has checked whose number does not exist, and the reasons. A message that an
    /// operator sends again is sent.
    async fn dead(
        &self,
        connection: &mut Connection,
        admitted: &[(ClaimKey, Sms, Admission)],
    ) -> QueryResult<HashMap<String, String>> {
        let Some(since) = self.dead_since else {
            return Ok(HashMap::new());
        };
        let unchecked = admitted.iter().filter(|(_, sms, _)| sms.stored.import_id.is_none());
        let phones: Vec<&str> = unchecked
            .filter_map(|(_, _, admission)| admission.phone())
            .map(Phone::as_str)
            .collect();
        if phones.is_empty() {
            return Ok(HashMap::new());
        }
        dead::among(connection, phones, since).await
    }

    /// Fails a message to a suppressed phone or to a number that does not exist, and delays one whose recipient has
    /// reached a cap.
    fn check_recipient(
        &mut self,
        sms: &Sms,
        admission: Admission,
        suppressed: &HashSet<String>,
        dead: &HashMap<String, String>,
    ) -> Admission {
        let Some(phone) = admission.phone().cloned() else {
            return admission;
        };
        let checked = if suppressed.contains(phone.as_str()) {
            let why = "the phone is on the suppression list";
            Admission::Fail(Failure::new(Class::Suppressed, why))
        } else if let Some(why) =
            dead.get(phone.as_str()).filter(|_| sms.stored.import_id.is_none())
        {
            Admission::Fail(Failure::new(Class::Recipient, why))
        } else if matches!(admission, Admission::Send { .. }) {
            let capped = self.recipients.check_cap(sms, &phone, self.batch);
            capped.unwrap_or(admission)
        } else {
            admission
        };
        if matches!(checked, Admission::Fail(_)) {
            self.writes.rewrite_phone(sms, &phone);
        }
        checked
    }
}
