//! Campaigns that share a provider: by priority first, then in turns, and none delays another.

use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_store::{CampaignChange, NewCampaign};

use super::provider::{Faults, SimProvider};
use super::{START, Simulation, WorkerSpec};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// Adds a campaign with `count` messages.
async fn campaign(
    simulation: &Simulation,
    new: NewCampaign,
    count: usize,
    due_at: Timestamp,
) -> i64 {
    let opened = simulation.store.open_campaign(&new, START).await;
    let id = opened.expect("a campaign").id;
    let first = usize::try_from(id).expect("small") * 1_000_000;
    let numbers = first..first + count;
    simulation.import_into(id, numbers, due_at, None).await;
    id
}

fn named(name: &str) -> NewCampaign {
    NewCampaign { name: name.to_owned(), ..NewCampaign::default() }
}

fn with_priority(name: &str, priority: i32) -> NewCampaign {
    let mut new = named(name);
    new.settings.priority = priority;
    new
}

/// When the messages of a campaign started.
fn starts(simulation: &Simulation, campaign_id: i64) -> Vec<Duration> {
    let prefix = format!("+86138{campaign_id:02}");
    let (starts, _) = simulation.world.history();
    let of_it = starts.iter().filter(|start| start.phone.starts_with(&prefix));
    of_it.map(|start| start.at).collect()
}

fn last(starts: &[Duration]) -> Duration {
    starts.iter().max().copied().expect("it was sent")
}

/// A simulation of a campaign, number 2, with `count` messages at this rate.
async fn crowd(rate: &str, count: usize) -> Simulation {
    Simulation::new(SimProvider::new(20, Faults::default()), rate, count).await
}

#[tokio::test(start_paused = true)]
async fn large_campaign_does_not_delay_a_small_one() {
    for workers in 1..=3 {
        let simulation = crowd("100/s", 2_000).await;
        let few = campaign(&simulation, named("few"), 10, START).await;
        let work = (0..workers).map(|_| simulation.work(None));
        futures(work).await;
        let ten = starts(&simulation, few);
        assert_eq!(ten.len(), 10);
        let late = last(&ten);
        assert!(late < Duration::from_secs(1), "{workers} workers: {late:?}");
        simulation.check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn scheduled_messages_delay_no_others() {
    let simulation = crowd("100/s", 500).await;
    let due_at = START.plus(HOUR);
    let first = with_priority("later", 10);
    let later = campaign(&simulation, first, 500, due_at).await;
    simulation.work(None).await;
    let waited = starts(&simulation, later);
    assert_eq!(waited.len(), 500);
    assert!(waited.iter().all(|at| *at >= HOUR));
    let (all, _) = simulation.world.history();
    let early = all.iter().filter(|start| start.at < HOUR);
    let span = early.map(|start| start.at).max().expect("some were due");
    assert!(span < Duration::from_millis(5_600), "{span:?}");
}

#[tokio::test(start_paused = true)]
async fn higher_priority_is_sent_first() {
    let simulation = crowd("100/s", 1_000).await;
    let urgent = with_priority("urgent", 1);
    let urgent = campaign(&simulation, urgent, 500, START).await;
    simulation.work(None).await;
    let urgent = starts(&simulation, urgent);
    assert!(last(&urgent) < Duration::from_millis(5_600));
    let (all, _) = simulation.world.history();
    let before = all.iter().filter(|start| start.at < last(&urgent));
    // Only the first claims have messages of the other campaign.
    assert!(before.count() <= 520);
}

#[tokio::test(start_paused = true)]
async fn campaign_at_its_own_limit_delays_no_other() {
    for priority in [-1, 0, 1] {
        let simulation = crowd("", 2_000).await;
        let mut slow = with_priority("slow", priority);
        slow.settings.rate = "1/s".parse().expect("a rate");
        let slow = campaign(&simulation, slow, 5, START).await;
        simulation.work(None).await;
        assert_eq!(starts(&simulation, slow).len(), 5);
        let (all, _) = simulation.world.history();
        let mut others: Vec<Duration> = all
            .iter()
            .filter(|start| start.phone.starts_with("+8613800"))
            .map(|start| start.at)
            .collect();
        others.sort_unstable();
        // A concurrency of 16 and 80 ms for each request: the slow campaign may have one of them.
        let span = others[others.len() - 1];
        assert!(span < Duration::from_secs(12), "{priority}: {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_campaign_delays_no_other_and_is_widened_at_once() {
    let simulation = crowd("", 10).await;
    let limit = async |rate: &str| {
        let change = CampaignChange {
            rate: Some(rate.parse().expect("a rate")),
            ..CampaignChange::default()
        };
        let changed = simulation.store.change_campaign(simulation.campaign_id, &change);
        changed.await.expect("changed");
    };
    limit("2/day").await;
    let operator = async {
        tokio::time::sleep(SECOND * 10).await;
        let other = campaign(&simulation, named("other"), 5, START).await;
        tokio::time::sleep(SECOND * 10).await;
        limit("").await;
        other
    };
    let mut worker = simulation.worker();
    worker.settings.follow = true;
    worker.life = Some(SECOND * 40);
    let (_, other) = tokio::join!(simulation.work_as(worker), operator);
    let others = starts(&simulation, other);
    assert_eq!(others.len(), 5);
    assert!(last(&others) < SECOND * 12, "{others:?}");
    let (all, _) = simulation.world.history();
    let mut own: Vec<Duration> = all.iter().map(|start| start.at).collect();
    own.retain(|at| !others.contains(at));
    assert_eq!(own.iter().filter(|at| **at < SECOND * 20).count(), 2);
    assert_eq!(own.len(), 10);
    assert!(last(&own) < SECOND * 22, "{own:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_share_the_turns() {
    let simulation = crowd("200/s", 1_000).await;
    let equal = campaign(&simulation, named("equal"), 1_000, START).await;
    let one = WorkerSpec { rate: simulation.rate.clone(), ..simulation.worker() };
    tokio::join!(simulation.work(None), simulation.work_as(one));
    let mut equal = starts(&simulation, equal);
    equal.sort_unstable();
    // Half of the messages in half of the time.
    let half = equal[500];
    let span = simulation.world.span();
    assert!(half > span.mul_f64(0.4) && half < span.mul_f64(0.6), "{half:?} of {span:?}");
}

/// Waits for all futures.
async fn futures(all: impl Iterator<Item = impl Future>) {
    let mut pinned: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        pinned.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if pinned.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
