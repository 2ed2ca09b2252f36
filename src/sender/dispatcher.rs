//! The clerk owns the database side of all slots. Each round is one transaction: what has ended is
//! settled, and rows are claimed for whoever is idle. While it commits, the next round gathers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::breaker::CircuitBreaker;
use super::clock::{Clock, micros};
use super::commit::Commits;
use super::database::Database;
use super::journal::Journal;
use super::lease::Lease;
use super::lookup::StatusLookups;
use super::planner::Rules;
use super::provider_state::ProviderState;
use super::request::{Finished, Surroundings, Transport};
use super::{Ended, Event, OnUnknown, Progress, SendError, Settings};
use crate::limit::{HORIZON, MIN_TOLERANCE};
use crate::provider::Provider;
use crate::queue::batch::alone;
use crate::sms::Timestamp;
use crate::store::{Campaign, CommitBatch};
use crate::window::Window;

/// So often the clerk looks at campaigns and workers.
pub(super) const UPKEEP: Duration = Duration::from_secs(1);
/// The longest that moments are asked for after a round; with the longest that one is expected to take, it is less
/// than what the pace allows.
const LONGEST_HORIZON: Duration = Duration::from_secs(4);
/// A request has at least so long to start in, between too early and too late, in microseconds.
const ROOM_US: i64 = 5_000;
/// A reach is a multiple of this, and is kept while it is no more than twice this too wide: who
/// changes it loses what there is to gain from having a limit to itself.
const STEP_US: i64 = 2_000;

/// What a clerk is made of.
pub(super) struct Parts {
    pub(super) database: Database,
    pub(super) providers: BTreeMap<String, Arc<Provider>>,
    pub(super) transports: BTreeMap<String, Transport>,
    pub(super) settings: Settings,
    pub(super) clock: Arc<Clock>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) progress: Arc<Progress>,
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
}

pub(super) struct Dispatcher {
    pub(super) database: Database,
    pub(super) settings: Settings,
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) routes: Vec<ProviderState>,
    pub(super) progress: Arc<Progress>,
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) around: Arc<Surroundings>,
    pub(super) ended: mpsc::UnboundedReceiver<Finished>,
    /// Slots and the heartbeat; they end with the dispatcher.
    pub(super) tasks: JoinSet<()>,
    /// Messages that need no further attempt.
    pub(super) finished: u64,
    pub(super) upkeep_at: Instant,
    pub(super) orphans_at: Instant,
    /// Claimed messages whose settlement is not committed.
    pub(super) claims: HashSet<i64>,
    /// How long a round takes to commit, of late.
    pub(super) commit: Duration,
    /// Requests start within so long of their moments: as near as the clock's error allows.
    pub(super) reach: Duration,
    /// The clock's count of jumps when the round was planned.
    pub(super) jumps: u32,
    /// And by how many microseconds it had jumped altogether.
    set_by_us: i64,
    /// The clock has jumped, and the limits have not been told.
    pub(super) refill: bool,
    pub(super) commits: Commits,
    pub(super) journal: Journal,
    /// Since when it could not be told whether all is done.
    pub(super) away_since: Option<Instant>,
    pub(super) inquiry: StatusLookups,
    /// Of the campaigns that have one.
    pub(super) windows: Arc<HashMap<i64, Window>>,
    /// Campaigns whose recipients read the provider's template and not the text of the message.
    pub(super) templates: Arc<HashSet<i64>>,
    /// It said that it waits for a window.
    pub(super) rests: bool,
    /// Campaigns whose provider this worker does not know.
    pub(super) unserved: Vec<Campaign>,
}

impl Dispatcher {
    pub(super) async fn begin(parts: Parts) -> Result<Self, SendError> {
        let settings = parts.settings;
        let store = parts.database.reach().await?;
        let journal = Journal::of(store, settings.state_folder.as_deref()).await?;
        let lease = Lease::begin(
            parts.database.clone(),
            Arc::clone(&parts.clock),
            settings.sender.lease,
            settings.sender.concurrency,
        )
        .await?;
        let settings_lease = settings.sender.lease;
        let (sender, ended) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&lease).keep());
        let mut dispatcher = Self {
            database: parts.database,
            around: Arc::new(Surroundings {
                clock: Arc::clone(&parts.clock),
                lease: Arc::clone(&lease),
                stop: parts.stop.clone(),
                ended: sender,
                progress: Arc::clone(&parts.progress),
            }),
            routes: routes(&parts.providers, &parts.transports, &settings, &parts.clock),
            settings,
            clock: parts.clock,
            lease,
            progress: parts.progress,
            events: parts.events,
            stop: parts.stop,
            ended,
            tasks,
            finished: 0,
            upkeep_at: Instant::now(),
            orphans_at: Instant::now() + settings_lease,
            claims: HashSet::new(),
            commit: Duration::from_millis(1),
            reach: MIN_TOLERANCE,
            jumps: 0,
            set_by_us: 0,
            refill: false,
            commits: Commits::default(),
            journal,
            away_since: None,
            inquiry: StatusLookups::new(),
            windows: Arc::default(),
            templates: Arc::default(),
            rests: false,
            unserved: Vec::new(),
        };
        dispatcher.settle_journal().await?;
        let now = dispatcher.clock.now();
        dispatcher.database.reach().await?.park_nobodys(now).await?;
        dispatcher.upkeep(true).await?;
        Ok(dispatcher)
    }

    /// Sends until there is nothing left to do, or until it is told to stop.
    pub(super) async fn run(mut self) -> Result<Ended, SendError> {
        let ended = self.work().await;
        if ended.is_err() {
            self.leave().await;
        }
        ended
    }

    async fn work(&mut self) -> Result<Ended, SendError> {
        loop {
            if self.upkeep_at <= Instant::now() {
                self.upkeep_unless_away().await;
            }
            let ended = self.gather().await;
            let round = Arc::new(self.plan(ended));
            if !round.is_idle() {
                let done = self.commit(&round).await?;
                if done.is_worker_missing {
                    self.lease.forfeit(round.worker_id);
                }
                self.dispatch(&round, done);
            }
            self.settle_unstored().await?;
            self.check_claims()?;
            if let Some(ended) = self.is_finished_unless_away().await? {
                self.tasks.abort_all();
                if let Err(error) = self.lease.end().await {
                    tracing::warn!(%error, "this worker stays on the list until another finds it gone");
                }
                return Ok(ended);
            }
        }
    }

    /// Waits until something has ended, or until there may be something to claim.
    async fn gather(&mut self) -> Vec<Finished> {
        let mut ended = Vec::new();
        while let Ok(one) = self.ended.try_recv() {
            ended.push(one);
        }
        while self.tasks.try_join_next().is_some() {}
        let now_us = self.clock.now_us();
        let wakes_at_us = self.wakes_at_us();
        if !ended.is_empty() || wakes_at_us.is_some_and(|at_us| at_us <= now_us) {
            return ended;
        }
        let stopping = self.is_stopping();
        let until = wakes_at_us.map_or(UPKEEP, |at_us| self.clock.until(at_us));
        let wake = (Instant::now() + until).min(self.upkeep_at);
        let wake = self.commits.claim_at().map_or(wake, |at| wake.min(at));
        let mut heard = None;
        tokio::select! {
            biased;
            one = self.ended.recv() => ended.extend(one),
            one = self.inquiry.heard.recv() => heard = one,
            _ = self.stop.wait_for(|stop| *stop), if !stopping => {}
            () = tokio::time::sleep_until(wake) => {}
        }
        if let Some(heard) = heard {
            self.hear(heard).await;
        }
        while let Ok(one) = self.ended.try_recv() {
            ended.push(one);
        }
        ended
    }

    /// Decides what has ended, and what to ask for.
    fn plan(&mut self, ended: Vec<Finished>) -> CommitBatch {
        let now = self.clock.now();
        let jumps = self.clock.jumps();
        if jumps != self.jumps {
            self.jumps = jumps;
            self.refill = true;
            let set_by_us = self.clock.set_by_us();
            for route in &mut self.routes {
                route.shift(set_by_us - self.set_by_us);
            }
            self.set_by_us = set_by_us;
        }
        self.reach = fitting(self.reach, self.clock.error_us());
        let mut round = self.empty_round(now);
        round.settlements.append(&mut self.inquiry.found);
        round
            .campaign_stops
            .append(&mut self.inquiry.campaign_stops);
        for one in ended {
            self.conclude(one, &mut round);
        }
        self.release_held(&mut round);
        self.return_moments(&mut round);
        if !self.is_stopping() && self.lease.holds() && self.commits.claim_at().is_none() {
            if self.refill {
                self.refill = false;
                self.refill(&mut round);
            } else {
                self.ask(&mut round);
            }
        }
        round
    }

    pub(super) fn empty_round(&self, now: Timestamp) -> CommitBatch {
        let rules = Rules {
            now,
            reach: self.reach,
            region: self.settings.default_region,
            windows: Arc::clone(&self.windows),
            templates: Arc::clone(&self.templates),
        };
        CommitBatch {
            worker_id: self.lease.worker_id(),
            now,
            tolerance: self.reach,
            settlements: Vec::new(),
            campaign_stops: Vec::new(),
            pauses: Vec::new(),
            fill_limits: false,
            claims: Vec::new(),
            caps: self.settings.sender.max_per_recipient.clone(),
            admit: Arc::new(move |sms| rules.admit(sms)),
            fill: Arc::new(alone),
        }
    }

    /// How far past the commit moments are asked for: at least until more are to be had, also when a
    /// round that only settles and a look at campaigns and workers come between.
    pub(super) fn horizon(&self) -> Duration {
        HORIZON.max(self.commit * 4).min(LONGEST_HORIZON)
    }

    /// Whether a message that was perhaps accepted may be sent again at a moment, and only once be accepted: a
    /// provider keeps to a reference for so long and no longer. Or the operator takes the risk.
    pub(super) fn may_resend(&self, route: usize, claimed_at: Timestamp, at: Timestamp) -> bool {
        let honoured = self.routes[route].provider.capabilities().honoured_for();
        self.settings.sender.on_unknown == OnUnknown::Resend
            || honoured.is_some_and(|span| at.since(claimed_at) < span)
    }

    /// Whether its provider can be asked: then it is, before anything is sent again.
    pub(super) fn can_ask(&self, route: usize) -> bool {
        self.routes[route].provider.capabilities().lookup.is_some()
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// The reach that leaves room beside the clock's error on both sides.
fn fitting(reach: Duration, error_us: i64) -> Duration {
    let needed_us = error_us.saturating_mul(2).saturating_add(ROOM_US);
    let reach_us = micros(reach);
    let fits = needed_us <= reach_us && needed_us + 2 * STEP_US >= reach_us;
    if fits || (needed_us <= reach_us && reach <= MIN_TOLERANCE) {
        return reach;
    }
    let steps_us = (needed_us / STEP_US + 1).saturating_mul(STEP_US);
    Duration::from_micros(steps_us.unsigned_abs()).max(MIN_TOLERANCE)
}

fn routes(
    providers: &BTreeMap<String, Arc<Provider>>,
    transports: &BTreeMap<String, Transport>,
    settings: &Settings,
    clock: &Clock,
) -> Vec<ProviderState> {
    let mut routes = Vec::new();
    for (name, provider) in providers {
        let Some(transport) = transports.get(name) else {
            continue;
        };
        let mut limits = provider.rates().0.clone();
        limits.extend(
            settings
                .rate
                .iter()
                .flat_map(|rates| rates.0.iter().copied()),
        );
        let breaker = CircuitBreaker::new(settings.breaker.clone());
        let now_us = clock.now_us();
        let mut route = ProviderState::new(
            Arc::clone(provider),
            transport.clone(),
            limits,
            breaker,
            now_us,
        );
        route.is_default = settings.default_provider.as_ref() == Some(name);
        routes.push(route);
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_leaves_room_beside_the_error_and_does_not_change_with_every_breath() {
        assert_eq!(fitting(MIN_TOLERANCE, 0), MIN_TOLERANCE);
        assert_eq!(fitting(MIN_TOLERANCE, 2_500), MIN_TOLERANCE);
        let far = fitting(MIN_TOLERANCE, 25_000);
        assert_eq!(far, Duration::from_millis(56));
        for error_us in [24_000, 25_400] {
            assert_eq!(fitting(far, error_us), far);
        }
        assert!(fitting(far, 26_000) > far);
        assert_eq!(fitting(far, 1_000), MIN_TOLERANCE);
        for error_us in 0..100_000 {
            let room_us = micros(fitting(MIN_TOLERANCE, error_us)) - 2 * error_us;
            assert!(
                (ROOM_US..=micros(MIN_TOLERANCE)).contains(&room_us),
                "{error_us}"
            );
        }
    }
}
