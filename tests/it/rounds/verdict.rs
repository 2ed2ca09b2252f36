//! The end of a round: a clean worker finishes, and the gateway's log is compared with the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::chaos::Tally;
use super::gateway::Doubt;
use super::{CAMPAIGN_LIMITS, CAMPAIGNS, LIMITS, MESSAGES, PATIENCE, World, phone};

/// When requests started, by the workers' logs: in microseconds of the host's steady clock.
#[derive(Default)]
pub(super) struct Starts {
    by_provider: [Vec<i64>; 2],
}

/// What was found, without a fault.
pub(super) struct Verdict {
    pub(super) tally: Tally,
    doubts: [Doubt; 2],
}

impl Starts {
    /// Reads the log of a worker, of which the last line may be cut.
    pub(super) fn read(&mut self, log: &str) {
        for line in log.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let fields = &event["fields"];
            let provider = fields["provider"].as_str().unwrap_or_default();
            if let Some(at) = fields["started_us"].as_i64() {
                let messages = fields["messages"].as_u64().unwrap_or(1);
                let all = &mut self.by_provider[usize::from(provider == "p1")];
                all.extend((0..messages).map(|_| at));
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.doubts, self.tally)
    }
}

/// The most in any second.
fn most_in_a_second<T: Copy + Ord>(mut at: Vec<T>, is_within: impl Fn(T, T) -> bool) -> usize {
    at.sort_unstable();
    let mut first = 0;
    let mut most = 0;
    for (last, now) in at.iter().enumerate() {
        while !is_within(at[first], *now) {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

/// The phones of the rows that satisfy a condition.
fn phones(world: &World, table: &str, condition: &str) -> Vec<String> {
    let sql = format!("SELECT phone AS value FROM {table} WHERE {condition}");
    world.db.words(&sql).into_iter().flatten().collect()
}

pub(super) fn finish(
    world: &mut World,
    (mut tally, mut starts): (Tally, Starts),
) -> Result<Verdict, String> {
    let mut sending = world.scratch.start(["send", "--yes"]);
    let deadline = Instant::now() + PATIENCE;
    while !sending.has_ended() {
        if Instant::now() > deadline {
            return Err("the last `smsq send` does not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ran = sending.ended();
    starts.read(&ran.stderr());
    let mut faults = Vec::new();
    if !matches!(ran.code(), Some(0 | 1)) || ran.stderr().contains("panicked") {
        faults.push(format!("the last `smsq send`: {ran}"));
    }
    let checked = world.scratch.run(["check"]);
    if checked.code() != Some(0) {
        faults.push(format!("`smsq check`: {checked}"));
    }
    check_sums(world, &mut faults);
    check_places(world, &mut tally, &mut faults);
    check_limits(world, &starts, &mut tally, &mut faults);
    if faults.is_empty() {
        return Ok(Verdict {
            tally,
            doubts: world.doubts,
        });
    }
    Err(format!("{:?} {}", world.doubts, faults.join("; ")))
}

/// What was imported is in exactly one table.
fn check_sums(world: &World, faults: &mut Vec<String>) {
    let number = |sql: &str| {
        world
            .db
            .number(&format!("SELECT coalesce(sum(n), 0) AS value FROM {sql}"))
    };
    let imported = number("(SELECT accepted - replaced AS n FROM import) AS t");
    let purged = number("(SELECT sent + failed + unknown + cancelled AS n FROM purged) AS t");
    let tables = ["sms", "sms_sent", "sms_failed"];
    let rows: i64 = tables
        .into_iter()
        .map(|table| number(&format!("(SELECT 1 AS n FROM {table}) AS t")))
        .sum();
    if imported != rows + purged {
        faults.push(format!(
            "{imported} imported, {rows} stored, {purged} purged"
        ));
    }
    let twice = "SELECT count(*) AS value FROM sms_sent s JOIN sms_failed f ON s.id = f.id";
    let queued = "SELECT count(*) AS value FROM sms q JOIN sms_sent s ON q.id = s.id";
    for sql in [twice, queued] {
        if world.db.number(sql) != 0 {
            faults.push("a message is in two tables".to_owned());
        }
    }
}

/// Each message is where the gateway and the operators say.
fn check_places(world: &World, tally: &mut Tally, faults: &mut Vec<String>) {
    let asked = &world.asked;
    let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
    for one in world.gateway.accepted() {
        *accepted.entry(one.phone).or_default() += 1;
    }
    let phones_in = |table: &str, condition: &str| -> BTreeSet<String> {
        phones(world, table, condition).into_iter().collect()
    };
    for (campaign, name) in CAMPAIGNS.into_iter().enumerate() {
        let id = "(SELECT id FROM campaign WHERE name = 'NAME')".replace("NAME", name);
        let within = |more: &str| format!("campaign_id = {id} AND {more}");
        let sent = phones_in("sms_sent", &within("1 = 1"));
        let sent_often = phones_in("sms_sent", &within("accepted > 1"));
        let failed = phones_in("sms_failed", &within("class <> 'cancelled'"));
        let cancelled = phones_in("sms_failed", &within("class = 'cancelled'"));
        let waiting = phones_in("sms", &within("state < 2"));
        let certain = phones_in("sms", &within("state = 0 AND NOT in_doubt"));
        let unknown = phones_in("sms", &within("state = 2"));
        let state = world.db.number(&format!(
            "SELECT state AS value FROM campaign WHERE id = {id}"
        ));
        tally.unknown += unknown.len();
        for phone in (0..MESSAGES[campaign]).map(|row| phone(campaign, row)) {
            tally.messages += 1;
            if asked.purged.contains(&phone) {
                continue;
            }
            let mut found = |what: &str| faults.push(format!("{name} {phone}: {what}"));
            let count = accepted.get(&phone).copied().unwrap_or_default();
            tally.accepted += count;
            let was_asked = asked.resend.contains(&phone) || asked.settled_failed.contains(&phone);
            if count > 1 && was_asked {
                tally.twice_asked += 1;
            }
            if count > 1 && !was_asked {
                found(&format!("accepted {count} times"));
            }
            let doubt = world.doubts[campaign];
            if sent_often.contains(&phone) && !was_asked && doubt != Doubt::References {
                found("its row says that it was accepted twice");
            }
            let is_sent = sent.contains(&phone);
            let is_failed = failed.contains(&phone) && !is_sent;
            if count > 0 && is_failed && !asked.settled_failed.contains(&phone) {
                found("accepted, and reported as failed");
            }
            let is_elsewhere = is_sent || unknown.contains(&phone) || waiting.contains(&phone);
            if count > 0 && cancelled.contains(&phone) && !is_elsewhere && !was_asked {
                found("accepted, and reported as cancelled");
            }
            if count > 0 && certain.contains(&phone) && !was_asked {
                found("accepted, and queued");
            }
            if count == 0 && is_sent && !asked.settled_sent.contains(&phone) {
                found("reported as sent, and never accepted");
            }
            let is_anywhere = is_elsewhere || failed.contains(&phone) || cancelled.contains(&phone);
            if !is_anywhere && !asked.suppressed.contains(&phone) {
                found("lost");
            }
            if state == 0 && waiting.contains(&phone) {
                found("still queued");
            }
            if state == 0 && doubt == Doubt::Lookups && unknown.contains(&phone) {
                found(&format!("unknown, and accepted {count} times"));
            }
        }
    }
}

/// No second has more starts than a limit allows. Arrivals are later than starts, by as much as this machine delays
/// them, so they are only counted.
fn check_limits(world: &World, starts: &Starts, tally: &mut Tally, faults: &mut Vec<String>) {
    for (provider, at) in starts.by_provider.iter().enumerate() {
        // Each campaign has its own provider.
        let limit = LIMITS[provider].min(CAMPAIGN_LIMITS[provider]);
        let arrivals = world.gateway.arrivals(provider);
        if arrivals.len() > at.len() {
            let (arrived, started) = (arrivals.len(), at.len());
            faults.push(format!("{arrived} requests arrived, {started} started"));
        }
        let started = most_in_a_second(at.clone(), |first, last| last - first < 1_000_000);
        let arrived = most_in_a_second(arrivals, |first, last| {
            last.duration_since(first) < Duration::from_secs(1)
        });
        if started > limit {
            faults.push(format!(
                "{started} requests started in a second at {limit}/s"
            ));
        }
        tally.most_started = tally.most_started.max(started * 100 / limit);
        tally.most_arrived = tally.most_arrived.max(arrived * 100 / limit);
    }
}
