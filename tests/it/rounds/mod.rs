//! Random rounds: workers are killed, frozen and stopped, connections and the database fail, operators run all their
//! commands, and the gateway misbehaves. Afterwards the gateway's log is compared with the tables: nothing is lost,
//! nothing is sent twice unless an operator asked for it, and no limit was exceeded.
//!
//! `SMSQ_ROUNDS=100 SMSQ_SEED=7 tests/run --test it rounds::` runs as many, with the seeds from 7 on, and prints a line
//! for each. A round that fails prints its seed and keeps its folder.

mod chaos;
mod gateway;
mod operators;
mod verdict;

use std::env;
use std::io::Write;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use chaos::{Chaos, Tally};
use gateway::{Doubt, Gateway, TIMEOUT};
use operators::Asked;
use verdict::Verdict;

use crate::support::Scratch;
use crate::support::databases::{Database, Kind};
use crate::support::proxy::Proxy;
use crate::support::server::Server;

/// A worker that is frozen for longer is dead.
const LEASE: Duration = Duration::from_secs(5);
/// A clean worker ends within this, with room for a slow machine.
const PATIENCE: Duration = Duration::from_secs(150);
/// The campaigns, each with a provider of its own.
const CAMPAIGNS: [&str; 2] = ["spring", "autumn"];
/// How many messages each campaign has, in two lists.
const MESSAGES: [u32; 2] = [180, 120];
/// The limit of each provider, in messages a second.
const LIMITS: [usize; 2] = [60, 40];

/// The limit of each campaign, which operators only lower.
const CAMPAIGN_LIMITS: [usize; 2] = [50, 45];

/// What one round needs.
struct World {
    random: StdRng,
    doubts: [Doubt; 2],
    /// Receipts settle doubt, too.
    has_receipts: bool,
    gateway: Gateway,
    db: Database,
    proxy: Option<Proxy>,
    scratch: Scratch,
    asked: Asked,
    /// What happened, as text.
    history: Vec<String>,
}

impl World {
    fn new(kind: Kind, server: Option<&Server>, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let doubts = [Doubt::References, Doubt::Lookups, Doubt::Nothing];
        let doubts = [0; 2].map(|_| doubts[random.random_range(0..doubts.len())]);
        let db = server.map_or_else(
            || Database::new(kind),
            |server| Database::on(kind, &server.url),
        );
        let world = Self {
            gateway: Gateway::start(random.random(), doubts),
            proxy: server.map(|_| Proxy::start(&db)),
            scratch: Scratch::at(&db.url),
            asked: Asked::default(),
            history: Vec::new(),
            has_receipts: random.random_bool(0.3),
            random,
            doubts,
            db,
        };
        world.configure();
        world.import_first_lists();
        world
    }

    fn configure(&self) {
        let seconds = LEASE.as_secs();
        let mut toml = format!(
            "[sender]\nconcurrency = 8\nlease = \"{seconds}s\"\n\
             [retry]\nfirst_wait = \"20ms\"\nmax_wait = \"200ms\"\n\
             [circuit_breaker]\nfirst_probe = \"50ms\"\nmax_probe = \"200ms\"\n\
             [log]\nlevel = \"debug\"\nformat = \"json\"\n"
        );
        for (number, doubt) in self.doubts.iter().enumerate() {
            toml += &self.provider(number, *doubt);
            if self.has_receipts {
                toml += &self.receipts(number);
            }
        }
        self.scratch.write("smsq.toml", &toml);
    }

    fn provider(&self, number: usize, doubt: Doubt) -> String {
        let url = format!("http://{}/p{number}", self.gateway.address);
        let timeout = TIMEOUT.as_millis();
        let limit = LIMITS[number];
        let honours = doubt == Doubt::References;
        let lookup = if doubt == Doubt::Lookups {
            format!(
                r#"
[providers.p{number}.lookup]
url = "{url}/messages"
query = {{ reference = "{{{{ reference }}}}" }}
list = ""
matches = {{ "/reference" = "{{{{ reference }}}}" }}
message_id = "/id"
more = false
horizon = "24h"
rate = "50/s"
after = "200ms"
absent_after = "2s"
"#
            )
        } else {
            String::new()
        };
        format!(
            r#"
[providers.p{number}]
kind = "generic"
url = "{url}/messages"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}", reference = "{{{{ reference }}}}" }}
message_id = "/id"
error_code = "/error/code"
honours_reference = {honours}
timeout = "{timeout}ms"
rate = "{limit}/s"
[providers.p{number}.codes]
invalid_recipient = {{ class = "recipient", reason = "not a number that can be reached" }}
rate_limited = {{ class = "throttle" }}
{lookup}
"#
        )
    }

    fn receipts(&self, number: usize) -> String {
        let url = format!("http://{}/p{number}", self.gateway.address);
        format!(
            r#"
[providers.p{number}.receipts]
pull = "drain"
url = "{url}/receipts"
page_size = 100
every = "1s"
rate = "20/s"
list = "/receipts"
message_id = "/id"
reference = "/reference"
phone = "/to"
state = "/state"
at = "/at"
[providers.p{number}.receipts.states]
delivered = "delivered"
"#
        )
    }

    /// Writes two lists for each campaign, and imports the first one.
    fn import_first_lists(&self) {
        for (campaign, messages) in MESSAGES.into_iter().enumerate() {
            for (list, half) in [0..messages / 2, messages / 2..messages]
                .into_iter()
                .enumerate()
            {
                let phones = half.map(|row| format!("{}\n", phone(campaign, row)));
                let text: String = std::iter::once("phone\n".to_owned())
                    .chain(phones)
                    .collect();
                self.scratch.write(&list_name(campaign, list), &text);
            }
            let line = operators::import(campaign, 0);
            let ran = self.scratch.run(line.iter().map(String::as_str));
            assert_eq!(ran.code(), Some(0), "{ran}");
            let rate = format!("{}/s", CAMPAIGN_LIMITS[campaign]);
            let ran = self
                .scratch
                .run(["set", CAMPAIGNS[campaign], "--rate", &rate]);
            assert_eq!(ran.code(), Some(0), "{ran}");
        }
    }

    /// Whether something happens that has this probability.
    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.random_range(least..most))
    }
}

/// Each is in one campaign only.
fn phone(campaign: usize, row: u32) -> String {
    format!("+4474{:04}{row:04}", campaign + 1)
}

fn list_name(campaign: usize, list: usize) -> String {
    format!("{}-{list}.csv", CAMPAIGNS[campaign])
}

/// Plays one round; the error says what is wrong.
fn play(world: &mut World, server: Option<&mut Server>) -> Result<Verdict, String> {
    let mut chaos = Chaos::new(world, server);
    chaos.run();
    let tally = chaos.calm_down()?;
    verdict::finish(world, tally)
}

/// Rounds with consecutive seeds on one kind of database.
fn rounds(kind: Kind) {
    if !kind.is_there() {
        return;
    }
    let number = |name: &str| {
        env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let asked: Option<u64> = number("SMSQ_ROUNDS");
    let first = number("SMSQ_SEED").unwrap_or(1);
    let mut server = Server::start(kind);
    let mut total = Tally::default();
    let mut failed = Vec::new();
    for seed in first..first + asked.unwrap_or(1) {
        let began = Instant::now();
        let mut world = World::new(kind, server.as_ref(), seed);
        let line = match play(&mut world, server.as_mut()) {
            Ok(verdict) => {
                total.add(&verdict.tally);
                verdict.to_string()
            }
            Err(error) => {
                failed.push(format!("{kind:?}: SMSQ_SEED={seed}: {error}"));
                let folder = world.keep();
                format!("FAILED, see {folder}: {error}")
            }
        };
        if asked.is_some() {
            let seconds = began.elapsed().as_secs_f32();
            say(&format!("{kind:?} seed {seed}, {seconds:.1} s: {line}\n"));
        }
    }
    if asked.is_some() {
        let failed = failed.len();
        say(&format!(
            "{kind:?}, besides {failed} rounds that failed: {total}\n"
        ));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

impl World {
    /// Keeps the files of the round, with what happened and all rows.
    fn keep(mut self) -> String {
        self.history.extend(self.gateway.deeds());
        self.history.sort_unstable();
        let rows = [
            (
                "sms",
                "id, campaign_id, phone, state, in_doubt, attempts, worker_id, claim, claimed_at, last_reason",
            ),
            (
                "sms_sent",
                "id, campaign_id, phone, provider, message_id, attempts, accepted, claim, sent_at",
            ),
            (
                "sms_failed",
                "id, campaign_id, phone, class, reason, attempts, claim, failed_at",
            ),
            (
                "attempt",
                "sms_id, claim, at, provider, outcome, class, reason",
            ),
        ];
        for (table, columns) in rows {
            let sql = format!("SELECT concat_ws(' ', {columns}) AS value FROM {table}");
            let rows = self.db.words(&sql).into_iter().flatten();
            self.history
                .extend(rows.map(|row| format!("{table} {row}")));
        }
        self.scratch.write("history", &self.history.join("\n"));
        self.scratch.keep()
    }
}

/// The test runner captures what `eprintln` prints.
fn say(line: &str) {
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("standard error is open");
}

#[test]
fn random_rounds_on_sqlite_lose_and_repeat_nothing() {
    rounds(Kind::Sqlite);
}

#[test]
fn random_rounds_on_postgres_lose_and_repeat_nothing() {
    rounds(Kind::Postgres);
}

#[test]
fn random_rounds_on_mysql_lose_and_repeat_nothing() {
    rounds(Kind::Mysql);
}
