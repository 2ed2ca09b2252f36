//! Fetches the receipts of one provider: which are due, page by page, and where a pass stopped.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::{Deserialize, Serialize};
use smsq_message::phone::Phone;
use smsq_message::receipt::Receipt;
use smsq_message::sms::{Class, Failure, Outcome, Timestamp};
use smsq_metrics::Metrics;
use smsq_provider::client::{Client, ClientError};
use smsq_provider::{
    AwaitedMessage, Provider, PullShape, ReceiptCursor, ReceiptPage, ReceiptPath, ReceiptQuery,
    ReceiptSource, RequestContext, RequestResult,
};
use smsq_store::{AwaitingSms, ReceiptsApplied, Store, StoreError, TriedAt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::cadence::{ask_ages, due_spans, sweep_ages};
use super::{PullMode, PullSummary, ReceiptPuller, sleep};

/// Interval of drains.
const DRAIN_EVERY: Duration = Duration::from_secs(60);
/// Interval of the first two sweeps of a message.
const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// Interval at which messages are looked for that are due to be asked for.
const ASK_EVERY: Duration = Duration::from_secs(20);
/// How long a lease lasts without being renewed, which happens also while a request runs.
const LEASE: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// The clocks of the provider and of the database, and the moments of sending and settling, differ by less than this.
const MARGIN: Duration = Duration::from_secs(600);
/// How often a request that fails is made in one pass, and the pause before the second time, which doubles. A provider
/// that wants a longer pause than the last one is left alone until the next pass.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A later pass does not continue where an older one stopped: tokens of pages expire, and lists grow.
const RESUMED_FOR: Duration = Duration::from_secs(3_600);
/// A provider that fails is not asked again sooner, doubling up to the second.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(600);
/// How many messages are read at a time to ask for them.
const ASKED: i64 = 100;
/// The most pages of one pass: the rest comes in the next one.
const MAX_PAGES: u32 = 100_000;
/// How long a stopped process tries to store receipts that the provider returns only once.
const LAST_STORE: Duration = Duration::from_secs(30);
const STORE_RETRY: Duration = Duration::from_secs(1);

/// How receipts came that were fetched, in metrics.
const PULLED: &str = "pull";

/// Why a pass over one provider ended early.
enum PullError {
    Store(StoreError),
    /// The provider's answer.
    Provider(Outcome),
    /// The process is to stop, or another one has the lease.
    Ended,
}

impl From<StoreError> for PullError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// When the first and the last of some messages were sent.
type SentSpan = (Timestamp, Timestamp);

/// Where a pass over a repeatable source stopped: everything before was fetched and stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PassPosition {
    is_recheck: bool,
    /// When the pass began.
    began: Timestamp,
    place: PassPlace,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PassPlace {
    /// A page of a sweep of this span.
    Page { since: Timestamp, until: Timestamp, cursor: ReceiptCursor },
    /// The message after this one, of those that were sent in these spans.
    Message { spans: Vec<SentSpan>, after: (Timestamp, i64) },
}

pub(super) struct PulledProvider {
    pub(super) provider: Arc<Provider>,
    client: Client,
    /// Not before this instant.
    pub(super) next_pass: Instant,
    next_request: Instant,
    /// Passes in a row that failed.
    failures: u32,
    /// The last pass fetched everything that was due.
    pub(super) is_current: bool,
}

/// One pass over one provider.
struct Pass<'a> {
    store: &'a Store,
    pulled: &'a mut PulledProvider,
    source: &'a ReceiptSource,
    path: ReceiptPath,
    holder: i64,
    stop: watch::Receiver<bool>,
    metrics: &'a Metrics,
    renewed: Instant,
    is_default: bool,
    /// When the pass began; of one that continues, when the first one did.
    began: Timestamp,
    position: Option<PassPosition>,
    /// Requests that were answered.
    answered: u64,
    fetched: u64,
    applied: ReceiptsApplied,
}

impl PulledProvider {
    pub(super) fn new(provider: &Arc<Provider>) -> Result<Self, ClientError> {
        Ok(Self {
            client: Client::new(provider)?,
            provider: Arc::clone(provider),
            next_pass: Instant::now(),
            next_request: Instant::now(),
            failures: 0,
            is_current: false,
        })
    }

    /// Whether it is the provider with this name, and not all of its receipts that were due were fetched.
    pub(super) fn is_behind(&self, name: &str) -> bool {
        self.provider.name() == name && !self.is_current
    }
}

impl ReceiptPuller {
    /// One pass over a provider. Returns whether it is up to date.
    pub(super) async fn pull(
        &mut self,
        index: usize,
        mode: PullMode,
        summary: &mut PullSummary,
    ) -> Result<bool, StoreError> {
        let provider = Arc::clone(&self.providers[index].provider);
        let (name, Some(pull)) = (provider.name(), provider.pull()) else {
            return Ok(true);
        };
        let (path, source) = match (mode, &pull.recheck) {
            (PullMode::Recheck, Some(recheck)) => (ReceiptPath::Recheck, recheck),
            _ => (ReceiptPath::Pull, &pull.source),
        };
        self.providers[index].next_pass = Instant::now() + interval(source);
        if !self.awaits(name, None).await? {
            return Ok(true);
        }
        let now = self.store.now().await?;
        let until = now.plus(LEASE);
        let receipts = self.store.receipts();
        let lease = receipts.lease(name, self.holder, now, until, None).await?;
        let Some(lease) = lease else {
            summary.busy.push(name.to_owned());
            return Ok(false);
        };
        let is_default = self.is_default(name);
        let mut pass = Pass {
            store: &self.store,
            pulled: &mut self.providers[index],
            source,
            path,
            holder: self.holder,
            stop: self.stop.clone(),
            metrics: &self.metrics,
            renewed: Instant::now(),
            is_default,
            began: now,
            position: position(lease.position.as_deref(), path, now),
            answered: 0,
            fetched: 0,
            applied: ReceiptsApplied::default(),
        };
        let done = pass.run(mode, lease.pulled_at, now).await;
        summary.fetched += pass.fetched;
        summary.applied += pass.applied;
        let has_progress = pass.answered > 0;
        let stopped_at = pass.position.as_ref().and_then(text_of);
        let pulled_at = done.as_ref().is_ok_and(|done| *done).then_some(now);
        self.store.receipts().release(name, self.holder, pulled_at, stopped_at.as_deref()).await?;
        let pulled = &mut self.providers[index];
        match done {
            Ok(_) => {
                pulled.failures = 0;
                Ok(true)
            }
            Err(PullError::Ended) => Ok(false),
            Err(PullError::Store(error)) => Err(error),
            Err(PullError::Provider(outcome)) => {
                if has_progress {
                    pulled.failures = 0;
                }
                let wait = (FIRST_RETRY * (1 << pulled.failures.min(8))).min(LAST_RETRY);
                pulled.failures += 1;
                pulled.next_pass = Instant::now() + retry_after(&outcome).unwrap_or(wait).max(wait);
                let failure = outcome.failure().cloned();
                let failure =
                    failure.unwrap_or_else(|| Failure::new(Class::Unknown, "no receipts"));
                let reason = &failure.reason;
                tracing::warn!(provider = name, %reason, "cannot fetch receipts");
                summary.failed.push((name.to_owned(), failure));
                Ok(false)
            }
        }
    }
}
/// Where the last pass stopped, if it was one over the same source, and not long ago.
fn position(text: Option<&str>, path: ReceiptPath, now: Timestamp) -> Option<PassPosition> {
    let position: PassPosition = serde_json::from_str(text?).ok()?;
    let is_recent = now.since(position.began) < RESUMED_FOR;
    let is_same = position.is_recheck == (path == ReceiptPath::Recheck);
    Some(position).filter(|_| is_recent && is_same)
}

fn text_of(position: &PassPosition) -> Option<String> {
    serde_json::to_string(position).ok()
}

/// Whether the same request may succeed soon.
fn is_passing(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown(_) | Outcome::Unavailable { .. } | Outcome::Throttled { .. })
}

/// How often a source is looked at.
fn interval(source: &ReceiptSource) -> Duration {
    match source.shape {
        PullShape::Drain => source.every.unwrap_or(DRAIN_EVERY),
        PullShape::Sweep => source.every.unwrap_or(SWEEP_EVERY),
        PullShape::Ask => source.every.unwrap_or(ASK_EVERY),
    }
}

fn retry_after(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Throttled { retry_after, .. }
        | Outcome::Deferred { retry_after, .. }
        | Outcome::Unavailable { retry_after, .. } => *retry_after,
        _ => None,
    }
}

impl Pass<'_> {
    /// Returns whether anything was due.
    async fn run(
        &mut self,
        mode: PullMode,
        last: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<bool, PullError> {
        let resumed = self.resume(now).await?;
        let last = resumed.or(last);
        let all = Timestamp::from_millis(0)..=now;
        let spans = match (mode, self.source.shape) {
            (PullMode::Due, PullShape::Drain) => {
                let is_due = last.is_none_or(|last| now.since(last) >= interval(self.source));
                if is_due { vec![all] } else { Vec::new() }
            }
            (PullMode::Due, PullShape::Sweep) => {
                due_spans(&sweep_ages(interval(self.source)), last, now)
            }
            (PullMode::Due, PullShape::Ask) => due_spans(&ask_ages(), last, now),
            // The pass that was continued asked for those that were sent before it.
            (PullMode::Now | PullMode::Recheck, _) => vec![resumed.unwrap_or_default()..=now],
        };
        let mut awaited = Vec::new();
        for span in spans {
            let name = self.pulled.provider.name();
            let found = self.store.receipts().awaiting_span(name, &span).await?;
            awaited.extend(found);
            if self.source.shape != PullShape::Ask {
                let tried = TriedAt { provider: name, is_default: self.is_default };
                let found = self.store.receipts().unknown_span(tried, None, &span).await?;
                awaited.extend(found);
            }
        }
        let first = awaited.iter().map(|(first, _)| *first).min();
        let last = awaited.iter().map(|(_, last)| *last).max();
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(resumed.is_some());
        };
        if self.source.shape == PullShape::Ask {
            self.ask(awaited, Timestamp::from_millis(0), 0).await?;
            return Ok(true);
        }
        let reach = self.source.horizon.map(|horizon| now.minus(horizon));
        let since = first.minus(MARGIN).max(reach.unwrap_or_default());
        let until = last.plus(MARGIN).min(now.plus(MARGIN));
        self.sweep(since, until, ReceiptCursor::default()).await?;
        if self.source.shape == PullShape::Drain {
            // Those that became visible meanwhile are returned again.
            self.confirm(now.minus(MARGIN)).await?;
        }
        Ok(true)
    }

    /// Continues the pass that stopped, if there is one. Returns when that pass began.
    async fn resume(&mut self, now: Timestamp) -> Result<Option<Timestamp>, PullError> {
        let Some(stopped) = self.position.clone() else {
            return Ok(None);
        };
        self.began = stopped.began;
        let done = match stopped.place {
            PassPlace::Page { since, until, cursor } => self.sweep(since, until, cursor).await,
            PassPlace::Message { spans, after: (at, id) } => self.ask(spans, at, id).await,
        };
        self.began = now;
        match done {
            Ok(()) => Ok(Some(stopped.began)),
            // Such as a token that has expired: from the beginning.
            Err(PullError::Provider(outcome)) if !is_passing(&outcome) => {
                self.position = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Remembers where to continue; receipts that are returned only once have no place.
    fn stop_at(&mut self, place: PassPlace) {
        let is_repeatable = self.source.shape != PullShape::Drain;
        self.position = is_repeatable.then_some(PassPosition {
            is_recheck: self.path == ReceiptPath::Recheck,
            began: self.began,
            place,
        });
    }

    /// Fetches all pages of this span, from the one at `cursor`.
    async fn sweep(
        &mut self,
        mut since: Timestamp,
        until: Timestamp,
        mut cursor: ReceiptCursor,
    ) -> Result<(), PullError> {
        let longest = self.source.span.unwrap_or(Duration::MAX);
        while since < until {
            let to = since.plus(longest).min(until);
            self.pages(since, to, until, cursor).await?;
            cursor = ReceiptCursor::default();
            since = to;
        }
        self.position = None;
        Ok(())
    }

    /// Fetches page by page, and stores each page before the next request. `all`: the end of the whole sweep.
    async fn pages(
        &mut self,
        since: Timestamp,
        until: Timestamp,
        all: Timestamp,
        mut cursor: ReceiptCursor,
    ) -> Result<(), PullError> {
        // Of pages and of their tokens: some providers return their last page again and again, or pages in a circle.
        let mut seen: HashSet<u64> = HashSet::new();
        let hasher = RandomState::new();
        for _ in 0..MAX_PAGES {
            self.stop_at(PassPlace::Page { since, until: all, cursor: cursor.clone() });
            let query = ReceiptQuery::Page { since, until, page: &cursor };
            let page = self.fetch(&query).await?;
            self.keep(&page.receipts).await?;
            let entries: Vec<_> = page
                .receipts
                .iter()
                .map(|receipt| {
                    let message = (&receipt.reference, &receipt.message_id, &receipt.phone);
                    (message, receipt.state, receipt.part, receipt.at)
                })
                .collect();
            let is_new = entries.is_empty() || seen.insert(hasher.hash_one(entries));
            let Some(next) = page.next.filter(|_| is_new) else {
                break;
            };
            let token = next.next.as_ref();
            if token.is_some_and(|token| !seen.insert(hasher.hash_one(token))) {
                let provider = self.pulled.provider.name();
                tracing::warn!(provider, "the pages of receipts point at each other");
                break;
            }
            cursor = next;
        }
        Ok(())
    }

    /// Asks for each message that was sent in one of these spans, of the first one after the message with this instant
    /// and id.
    async fn ask(
        &mut self,
        spans: Vec<SentSpan>,
        mut after_at: Timestamp,
        mut after_id: i64,
    ) -> Result<(), PullError> {
        for (index, (first, last)) in spans.iter().enumerate() {
            let span = *first..=*last;
            loop {
                let name = self.pulled.provider.name().to_owned();
                let messages =
                    self.store.receipts().awaiting(&name, &span, after_at, after_id, ASKED).await?;
                if messages.is_empty() {
                    break;
                }
                for message in &messages {
                    let spans = spans[index..].to_vec();
                    self.stop_at(PassPlace::Message { spans, after: (after_at, after_id) });
                    self.ask_for(message).await?;
                    (after_at, after_id) = (message.sent_at, message.id);
                }
            }
            (after_at, after_id) = (Timestamp::from_millis(0), 0);
        }
        self.position = None;
        Ok(())
    }

    async fn ask_for(&mut self, message: &AwaitingSms) -> Result<(), PullError> {
        let Some(phone) = Phone::stored(&message.phone) else {
            return Ok(());
        };
        let asked = AwaitedMessage {
            phone: &phone,
            reference: message.reference.as_deref().unwrap_or_default(),
            message_id: message.message_id.as_deref(),
            sent_at: message.sent_at,
        };
        let page = match self.fetch(&ReceiptQuery::Message(&asked)).await {
            Ok(page) => page,
            // The provider does not know this one message.
            Err(PullError::Provider(Outcome::Rejected(_))) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.keep(&page.receipts).await
    }

    /// Fetches one page, also if its request fails a few times.
    async fn fetch(&mut self, query: &ReceiptQuery<'_>) -> Result<ReceiptPage, PullError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            let outcome = match self.fetch_once(query).await {
                Err(PullError::Provider(outcome)) if is_passing(&outcome) => outcome,
                done => return done,
            };
            let wait = retry_after(&outcome).unwrap_or_default().max(pause);
            if wait > LONGEST_PAUSE {
                return Err(PullError::Provider(outcome));
            }
            self.pulled.next_request = self.pulled.next_request.max(Instant::now() + wait);
            pause *= 2;
        }
        self.fetch_once(query).await
    }

    /// Sends one request within the rate, and reads its response.
    async fn fetch_once(&mut self, query: &ReceiptQuery<'_>) -> Result<ReceiptPage, PullError> {
        let context = self.context().await?;
        let request = self.pulled.provider.receipts(self.path, query, &context);
        let response = self.send(request).await?;
        let provider = &self.pulled.provider;
        let page = provider.parse_receipts(self.path, query, &response, &context);
        self.answered += u64::from(page.is_ok());
        page.map_err(PullError::Provider)
    }

    async fn context(&self) -> Result<RequestContext, StoreError> {
        Ok(RequestContext { now: self.store.now().await?, nonce: rand::random() })
    }

    async fn send(&mut self, request: RequestResult) -> Result<Response<Bytes>, PullError> {
        let request = request.map_err(PullError::Provider)?;
        while Instant::now() < self.pulled.next_request && !*self.stop.borrow() {
            let until = self.pulled.next_request.min(Instant::now() + RENEW_EVERY);
            sleep(until, &mut self.stop).await;
            self.renew().await?;
        }
        if *self.stop.borrow() {
            return Err(PullError::Ended);
        }
        self.renew().await?;
        let rates = self.source.rate.0.iter();
        let spacing = rates.map(|rate| rate.window / rate.limit.get()).max();
        self.pulled.next_request = Instant::now() + spacing.unwrap_or_default();
        let client = self.pulled.client.clone();
        // Never cancelled: its receipts may be returned only once.
        let mut sending = std::pin::pin!(client.send(request));
        let response = loop {
            tokio::select! {
                response = &mut sending => break response,
                () = tokio::time::sleep(RENEW_EVERY) => {
                    if self.renew().await.is_err() {
                        tracing::debug!("cannot renew the lease of receipts");
                    }
                }
            }
        };
        response.map_err(PullError::Provider)
    }

    /// Renews the lease, if that is due.
    async fn renew(&mut self) -> Result<(), PullError> {
        if self.renewed.elapsed() < RENEW_EVERY {
            return Ok(());
        }
        let (name, now) = (self.pulled.provider.name(), self.store.now().await?);
        let position = self.position.as_ref().and_then(text_of);
        let (receipts, until) = (self.store.receipts(), now.plus(LEASE));
        let lease = receipts.lease(name, self.holder, now, until, position.as_deref()).await?;
        if lease.is_none() {
            return Err(PullError::Ended);
        }
        self.renewed = Instant::now();
        Ok(())
    }

    /// Stores receipts; retries while the database is unreachable.
    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), PullError> {
        let mut stopped_at = None;
        loop {
            let name = self.pulled.provider.name();
            let stored = match self.store.now().await {
                Ok(now) => self.store.receipts().add(name, receipts, now).await,
                Err(error) => Err(error),
            };
            let error = match stored {
                Ok(applied) => {
                    self.fetched += receipts.len() as u64;
                    self.applied += applied;
                    self.metrics.record_receipts(name, PULLED, applied.new);
                    return Ok(());
                }
                Err(error) => error,
            };
            let count = receipts.len();
            tracing::warn!(%error, "{count} receipts wait for the database");
            if *self.stop.borrow() {
                let since = *stopped_at.get_or_insert_with(Instant::now);
                if since.elapsed() > LAST_STORE {
                    return Err(error.into());
                }
            }
            tokio::time::sleep(STORE_RETRY).await;
        }
    }

    /// Tells the provider what was stored, where it waits for that.
    async fn confirm(&mut self, fetched_at: Timestamp) -> Result<(), PullError> {
        let context = self.context().await?;
        let request = self.pulled.provider.confirm_receipts(fetched_at, &context);
        if let Some(request) = request {
            let response = self.send(request).await?;
            if !response.status().is_success() {
                let (name, status) = (self.pulled.provider.name(), response.status());
                // It returns them again, which changes nothing.
                tracing::warn!(provider = name, %status, "the provider did not take the confirmation of stored receipts");
            }
        }
        Ok(())
    }
}
