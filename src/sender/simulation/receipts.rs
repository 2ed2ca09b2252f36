//! Receipts while workers send and die: late, out of order, repeated, and of messages that are not in the database.
//! Each accepted message ends as sent, with the state that its last receipt reports. The checks find lost receipts.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::Timestamp;
use smsq_store::testing::server_databases;

use super::provider::{Accepted, Faults, SimProvider};
use super::{START, Simulation};

/// Receipts without a message are kept for this time.
const KEEP: Duration = Duration::from_secs(86_400);

fn reporting(seed: u64) -> SimProvider {
    let faults = Faults { answer_lost: 0.2, request_lost: 0.1, ..Faults::default() };
    let mut world = SimProvider::new(seed, faults);
    world.has_receipts = true;
    world
}

fn receipt(message: &Accepted, state: ReceiptState, at: Timestamp) -> Receipt {
    Receipt {
        reference: Some(message.reference.clone()),
        message_id: Some(message.id.clone()),
        phone: Some(message.phone.clone()),
        state,
        failure: None,
        at: Some(at),
        part: None,
    }
}

/// Every seventh message does not reach its phone.
fn last_state(message: &Accepted) -> ReceiptState {
    if message.phone.bytes().map(u32::from).sum::<u32>() % 7 == 0 {
        ReceiptState::Undelivered
    } else {
        ReceiptState::Delivered
    }
}

/// The receipts of a message: when each is there, since the simulation began. The last state may come first.
fn receipts(message: &Accepted, random: &mut StdRng) -> Vec<(Duration, Receipt)> {
    [ReceiptState::Accepted, last_state(message)]
        .into_iter()
        .map(|state| {
            let there = message.at + Duration::from_millis(random.random_range(0..20_000));
            (there, receipt(message, state, START.plus(message.at)))
        })
        .collect()
}

/// Receives the receipts of a simulated provider.
struct Receiver<'a> {
    simulation: &'a Simulation,
    random: StdRng,
    /// How many messages have receipts.
    reported: usize,
    waiting: Vec<(Duration, Receipt)>,
    stored: Vec<Receipt>,
    /// Receipts are tried again whose message was not settled when they came.
    tries_again: bool,
}

impl<'a> Receiver<'a> {
    fn new(simulation: &'a Simulation, seed: u64, tries_again: bool) -> Self {
        Self {
            simulation,
            random: StdRng::seed_from_u64(seed),
            reported: 0,
            waiting: Vec::new(),
            stored: Vec::new(),
            tries_again,
        }
    }

    fn now(&self) -> Timestamp {
        START.plus(self.simulation.world.began.elapsed())
    }

    /// Stores what is there, with some receipts a second time and some of a forgotten message.
    async fn receive(&mut self, by: Duration) {
        let accepted = self.simulation.world.accepted();
        for message in &accepted[self.reported..] {
            self.waiting.extend(receipts(message, &mut self.random));
        }
        self.reported = accepted.len();
        let (there, waiting) = self.waiting.drain(..).partition(|(at, _)| *at <= by);
        self.waiting = waiting;
        let mut page: Vec<Receipt> = there.into_iter().map(|(_, receipt)| receipt).collect();
        self.stored.extend(page.iter().cloned());
        page.extend(self.stored.choose(&mut self.random).cloned());
        if let Some(message) = accepted.choose(&mut self.random) {
            let forgotten = Accepted {
                reference: format!("forgotten-{}", self.stored.len()),
                id: format!("f{}", self.stored.len()),
                ..message.clone()
            };
            page.push(receipt(&forgotten, ReceiptState::Undelivered, self.now()));
        }
        page.shuffle(&mut self.random);
        let now = self.now();
        let store = &self.simulation.store;
        let added = store.receipts().add("world", &page, now).await;
        added.expect("stored");
        if self.tries_again {
            store.receipts().apply(KEEP, now).await.expect("applied");
        }
    }

    /// Receives until the work ends.
    async fn receive_while(&mut self, work: impl Future) {
        let mut work = Box::pin(work);
        loop {
            let pause = Duration::from_millis(self.random.random_range(50..3_000));
            tokio::select! {
                _ = &mut work => return,
                () = tokio::time::sleep(pause) => {}
            }
            self.receive(self.simulation.world.began.elapsed()).await;
        }
    }

    /// Receives what is late, and tries all again that have no message yet.
    async fn finish(&mut self) {
        self.receive(Duration::MAX).await;
        if !self.tries_again {
            return;
        }
        loop {
            let next = self.simulation.store.receipts().next_due().await;
            let Some(next) = next.expect("read").filter(|next| *next < START.plus(KEEP)) else {
                return;
            };
            let applied = self.simulation.store.receipts().apply(KEEP, next).await;
            applied.expect("applied");
        }
    }
}

/// Plays a campaign with workers that are killed; returns what is not as the receipts say.
async fn play(simulation: &Simulation, seed: u64, tries_again: bool) -> Vec<String> {
    let mut receiver = Receiver::new(simulation, seed, tries_again);
    for life in [4, 9] {
        let life = Duration::from_secs(life);
        receiver.receive_while(simulation.work(Some(life))).await;
    }
    receiver.receive_while(simulation.work(None)).await;
    receiver.finish().await;
    let totals = simulation.check().await;
    let accepted = simulation.world.accepted();
    let undelivered =
        accepted.iter().filter(|message| last_state(message) == ReceiptState::Undelivered).count()
            as u64;
    let delivery = totals.delivery.unwrap_or_default();
    let all = accepted.len() as u64;
    [
        ("sent", totals.sent, all),
        ("unknown", totals.unknown, totals.imported - all),
        ("undelivered", delivery.undelivered, undelivered),
        ("delivered", delivery.delivered, all - undelivered),
    ]
    .into_iter()
    .filter(|(_, found, expected)| found != expected)
    .map(|(name, found, expected)| format!("{found} {name} instead of {expected}"))
    .collect()
}

#[tokio::test(start_paused = true)]
async fn receipts_in_any_order_settle_every_accepted_message() {
    for seed in 0..4 {
        let simulation = Simulation::new(reporting(seed), "20/s", 200).await;
        let wrong = play(&simulation, seed, true).await;
        assert_eq!(wrong, Vec::<String>::new(), "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn receipts_on_servers_settle_every_accepted_message() {
    for url in server_databases().await {
        let simulation = Simulation::new_on(&url, reporting(7), "20/s", 100).await;
        let wrong = play(&simulation, 7, true).await;
        assert_eq!(wrong, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn checks_find_receipts_that_are_not_tried_again() {
    let mut wrong = Vec::new();
    for seed in 0..4 {
        let simulation = Simulation::new(reporting(seed), "20/s", 200).await;
        wrong.extend(play(&simulation, seed, false).await);
    }
    assert!(!wrong.is_empty(), "no receipt was lost");
}
