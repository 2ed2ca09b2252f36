//! What one transaction of a worker does, and its result.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smsq_lifecycle::admission::AdmissionRules;
use smsq_lifecycle::batch::BatchKeys;
use smsq_lifecycle::{ClaimedSms, ProviderClaim, Settled, Settlement};
use smsq_limit::{Account, Permit, Tolerance};
use smsq_message::budget::{Budget, BudgetError, BudgetRules};
use smsq_message::instant::DbMicros;
use smsq_message::rate::{RateError, Rates};
use smsq_message::sms::{LaneId, Sms, Timestamp};

use super::stops::CampaignStop;
use crate::campaigns::approvals::ApprovalGate;
use crate::tables::campaign_status::CampaignStatus;

/// The work of one transaction of a worker.
///
/// What a worker has learned and what it wants next goes into one transaction, because a commit costs the same for one
/// message and for hundreds, and because limits, campaigns and claims must be those of one instant. It is plain data,
/// so the same batch can be committed again after a lost answer: claim numbers keep that from counting anything twice.
/// The price is that one rejected row rejects all of it, and the sender has to split it.
#[derive(Clone)]
pub struct CommitBatch {
    pub worker_id: i64,
    pub now: Timestamp,
    /// How long after their permits the worker's requests start.
    pub tolerance: Tolerance,
    pub settlements: Vec<Settlement>,
    /// Messages as they were claimed, by id: the rows of those that were accepted need not be read.
    pub claimed: HashMap<i64, Sms>,
    /// Releases what this worker claimed without learning of it. No other commit of this worker may run: its claims
    /// would be released, and started when its answer arrives.
    pub orphans: Option<Orphans>,
    pub campaign_stops: Vec<CampaignStop>,
    pub pauses: Vec<ProviderPause>,
    /// The clock jumped: all windows of all limits count as full.
    pub fill_limits: bool,
    pub claims: Vec<ProviderClaim>,
    /// How many messages of all campaigns one recipient may get; empty: any number.
    pub caps: Rates,
    pub budgets: Arc<BudgetRules>,
    pub admission: Arc<AdmissionRules>,
    pub batch_keys: BatchKeys,
}

impl CommitBatch {
    /// A commit that does nothing.
    pub fn new(worker_id: i64, now: Timestamp) -> Self {
        Self {
            worker_id,
            now,
            tolerance: Tolerance::MIN,
            settlements: Vec::new(),
            claimed: HashMap::new(),
            orphans: None,
            campaign_stops: Vec::new(),
            pauses: Vec::new(),
            fill_limits: false,
            claims: Vec::new(),
            caps: Rates::default(),
            budgets: Arc::default(),
            admission: Arc::default(),
            batch_keys: Arc::new(|_, _| None),
        }
    }
}

/// Selects the messages that a worker claimed in a commit whose answer was lost. No request was started for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The messages and claims that the worker has in memory. They are not orphans.
    pub known: HashSet<(i64, i64)>,
    pub claimed_before: Timestamp,
    pub campaigns: Vec<i64>,
}

/// A pause that a provider asked for: no worker calls it before `until`, for any message or for those of one sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPause {
    pub account: Account,
    pub sender: Option<String>,
    pub until: Timestamp,
    /// The provider's reason.
    pub reason: String,
}

impl ProviderPause {
    /// Whether it is one of the whole account.
    pub fn is_of(&self, account: &str) -> bool {
        self.account.name() == account && self.sender.is_none()
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProviderClaimed {
    /// The new permit of each held request; `None` if there is none before its end.
    pub held: Vec<Option<Permit>>,
    pub rows: Vec<ClaimedSms>,
    /// The lanes that have no more messages for this provider now: none is due, their campaigns are not active, or
    /// another provider sends them.
    pub exhausted: Vec<LaneId>,
    /// When the limits of the account give the next permit, if they ended the claim.
    pub next_at: Option<DbMicros>,
    /// The lanes whose claim was ended by the limit of their campaign or sender, and when it gives the next permit.
    pub limited: Vec<(LaneId, DbMicros)>,
    /// The lanes whose claim was ended by a budget, and when they are claimed from again, if their campaigns are not
    /// stopped.
    pub over_budget: Vec<(LaneId, DbMicros)>,
    /// The lanes that got messages of lanes that are divided.
    pub divided: Vec<LaneId>,
    /// The number of messages that failed without a request.
    pub refused: u64,
    /// Why nothing may start at this provider.
    pub halted: Option<String>,
}

/// The result of a commit; `settled` and `claims` are in the order of the batch.
#[derive(Clone, Debug, Default)]
pub struct CommitResult {
    pub settled: Vec<Settled>,
    pub claims: Vec<ProviderClaimed>,
    /// The number of orphans that were released.
    pub released: usize,
    /// Another worker has declared this one dead, so it claimed nothing.
    pub is_worker_missing: bool,
}

/// The columns of a campaign that a claim needs.
pub(crate) struct ClaimedCampaign {
    pub(super) status: CampaignStatus,
    pub(super) provider: Option<String>,
    /// Without limits that can be read, nothing of it may start.
    pub(super) limits: Result<Rates, RateError>,
    /// The same.
    pub(super) budget: Result<Option<Budget>, BudgetError>,
    pub(super) approval: ApprovalGate,
}

impl ClaimedCampaign {
    /// Whether its messages may start.
    pub(super) fn is_active(&self) -> bool {
        self.status == CampaignStatus::Active
            && self.approval != ApprovalGate::AllWait
            && self.limits.is_ok()
            && self.budget.is_ok()
    }
}

/// A message's position in the order of claims: when it is due, and its id.
pub(super) type ClaimKey = (i64, i64);
