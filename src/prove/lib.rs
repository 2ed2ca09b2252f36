//! `smsq prove`: evidence that the promises hold on a database. In rounds, workers are killed, stopped and cut off from
//! the database, operators run commands, and a gateway misbehaves; then a judge compares the log of the gateway with
//! the tables.
//!
//! Whatever is random depends on the seed of the round, but not the order in which processes run: the same seed does
//! not fail always, and what happened is kept.

mod chaos;
mod child;
mod evidence;
mod judge;
mod operators;
pub mod proxy;
mod round;
mod world;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use evidence::fuzz_gateway_log;
use judge::Verdict;
use proxy::Proxy;
use serde_json::{Value, json};
use smsq_store::{Access, Store, StoreError};
use url::Url;
use world::{LIMIT, RoundPlan, Tally, World};

/// A query of the judge must not wait for longer.
const QUERY: Duration = Duration::from_secs(60);

/// What to prove, and with what.
#[derive(Clone, Debug)]
pub struct ProveConfig {
    /// A database without campaigns; by default a SQLite file for each round.
    pub database: Option<String>,
    pub rounds: u64,
    /// The seed of the first round; the next round has the next one.
    pub seed: u64,
    /// Messages of a round.
    pub messages: u64,
    /// A running gateway with the interface of the practice gateway, and the file of its log.
    pub gateway: Option<(Url, PathBuf)>,
    /// Where the files of the rounds are.
    pub folder: PathBuf,
    /// Whether the files of rounds without a problem are kept, too.
    pub keep: bool,
}

/// Why nothing could be proved.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A command that nothing disturbed.
    #[error("{0}")]
    Command(String),
    #[error("the database has campaigns or messages")]
    NotEmpty,
}

/// What one round showed, or several.
#[derive(Clone, Debug, Default)]
pub struct RoundReport {
    rounds: u64,
    seed: u64,
    offers: String,
    verdict: Verdict,
    tally: Tally,
    /// Broken promises, and what else must not happen.
    problems: Vec<String>,
    /// The folder of what happened, if there are problems.
    folder: Option<PathBuf>,
    elapsed: Duration,
}

impl RoundReport {
    /// Before the first round.
    pub fn first(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Broken promises, one line each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn folder(&self) -> Option<&PathBuf> {
        self.folder.as_ref()
    }

    /// Adds another round.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.verdict.add(&other.verdict);
        self.tally.add(&other.tally);
        self.elapsed += other.elapsed;
        self.problems.extend(other.problems.iter().cloned());
    }

    /// The figures, in their order in the table: name and value.
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        let Verdict {
            messages,
            accepted,
            lost,
            twice,
            twice_asked,
            unknown,
            unknown_listed,
            unknown_accepted,
            most_in_a_second,
            findings: _,
        } = &self.verdict;
        let tally = &self.tally;
        vec![
            ("rounds", self.rounds.to_string()),
            ("first seed", self.seed.to_string()),
            ("kills", tally.kills.to_string()),
            ("stops", tally.stops.to_string()),
            ("signals", tally.signals.to_string()),
            ("cut commits", tally.cuts.to_string()),
            ("outages", tally.outages.to_string()),
            ("commands", tally.commands.to_string()),
            ("messages", messages.to_string()),
            ("accepted", accepted.to_string()),
            ("lost", lost.to_string()),
            ("twice", format!("{twice} ({twice_asked} asked for)")),
            (
                "unknown",
                format!("{unknown} ({unknown_listed} listed, {unknown_accepted} accepted)"),
            ),
            ("most in any second", format!("{most_in_a_second} at {LIMIT}/s")),
            ("worst recovery", format!("{:.1} s", tally.recovery.as_secs_f64())),
        ]
    }

    pub fn to_json(&self) -> Value {
        let (verdict, tally) = (&self.verdict, &self.tally);
        json!({
            "rounds": self.rounds,
            "seed": self.seed,
            "kills": tally.kills,
            "stops": tally.stops,
            "signals": tally.signals,
            "cut_commits": tally.cuts,
            "outages": tally.outages,
            "commands": tally.commands,
            "messages": verdict.messages,
            "accepted": verdict.accepted,
            "lost": verdict.lost,
            "twice": verdict.twice,
            "twice_asked": verdict.twice_asked,
            "unknown": verdict.unknown,
            "unknown_listed": verdict.unknown_listed,
            "unknown_accepted": verdict.unknown_accepted,
            "most_in_a_second": verdict.most_in_a_second,
            "limit": LIMIT,
            "worst_recovery_ms": u64::try_from(tally.recovery.as_millis()).unwrap_or(u64::MAX),
            "problems": self.problems,
            "folder": self.folder,
        })
    }
}

/// One line for a round.
impl fmt::Display for RoundReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, tally, .. } = self;
        write!(
            f,
            "seed {}, {}: {} kills, {} stops, {} cut commits, {} messages, lost {}, twice {}, unknown {} ({} accepted), \
             at most {} in a second, recovery {:.1} s; {:.1} s",
            self.seed,
            self.offers,
            tally.kills,
            tally.stops,
            tally.cuts,
            verdict.messages,
            verdict.lost,
            verdict.twice,
            verdict.unknown,
            verdict.unknown_accepted,
            verdict.most_in_a_second,
            tally.recovery.as_secs_f64(),
            self.elapsed.as_secs_f64(),
        )
    }
}

impl ProveConfig {
    /// Checks that the database has no campaigns but those of earlier runs, which are done. Creates the tables.
    pub async fn check_database(&self) -> Result<(), ProveError> {
        let Some(url) = &self.database else {
            return Ok(());
        };
        let store = self.open(url).await?;
        let sql = "SELECT concat_ws('', count(*)) AS value FROM sms WHERE campaign_id NOT IN \
                   (SELECT id FROM campaign WHERE name LIKE 'prove-%') UNION ALL \
                   SELECT concat_ws('', count(*)) AS value FROM campaign \
                   WHERE name NOT LIKE 'prove-%' AND id <> 1";
        let counts = store.query(sql).await?;
        let unsent = "SELECT concat_ws('', count(*)) AS value FROM sms WHERE state < 2";
        let left = store.query(unsent).await?;
        if counts.iter().chain(&left).any(|count| count != "0") {
            return Err(ProveError::NotEmpty);
        }
        Ok(())
    }

    async fn open(&self, url: &str) -> Result<Store, StoreError> {
        let store = Store::open(url, Access::Create).await?;
        Ok(store.limited(QUERY))
    }

    /// Starts a proxy to the server of the database; `None` for a file, or where a proxy cannot read what passes.
    fn start_proxy(&self) -> io::Result<Option<(Proxy, String)>> {
        let Some((address, mut url)) = self.database.as_deref().and_then(single_server) else {
            return Ok(None);
        };
        let proxy = Proxy::start(&address)?;
        // A URL with a host accepts both.
        let is_set = url.set_ip_host(proxy.address().ip()).is_ok()
            && url.set_port(Some(proxy.address().port())).is_ok();
        Ok(is_set.then(|| (proxy, url.into())))
    }

    /// Whether connections to the database can be cut.
    pub fn cuts_connections(&self) -> bool {
        self.database.as_deref().and_then(single_server).is_some()
    }

    /// Plays one round. After an error the round has no verdict.
    pub async fn round(&self, number: u64) -> Result<RoundReport, ProveError> {
        let began = Instant::now();
        let seed = self.seed + number;
        let unix = jiff::Timestamp::now().as_millisecond();
        let unix = u64::try_from(unix).unwrap_or_default();
        let plan = RoundPlan {
            seed,
            name: format!("prove-{unix}-{seed}"),
            first_phone: unix / 1_000 * self.messages,
            folder: self.folder.join(format!("round-{seed}")),
        };
        let (played, world) = World::new(self, &plan).await?.play().await?;
        let mut problems: Vec<String> =
            played.verdict.findings.iter().map(ToString::to_string).collect();
        problems.extend(world.errors.iter().cloned());
        let offers = world.offers();
        drop(world);
        let folder = if problems.is_empty() && !self.keep {
            std::fs::remove_dir_all(&plan.folder)?;
            None
        } else {
            Some(plan.folder)
        };
        Ok(RoundReport {
            rounds: 1,
            seed,
            offers,
            verdict: played.verdict,
            tally: played.tally,
            problems,
            folder,
            elapsed: began.elapsed(),
        })
    }
}

/// `HOST:PORT` of the only server of a URL, and the URL; `None` where the connection is encrypted.
fn single_server(url: &str) -> Option<(String, Url)> {
    let url = Url::parse(url).ok()?;
    let port = match url.scheme() {
        "postgres" | "postgresql" => 5432,
        "mysql" | "mariadb" => 3306,
        _ => return None,
    };
    let is_set =
        |name: &str, value: &str| url.query_pairs().any(|pair| pair == (name.into(), value.into()));
    let host = url.host_str()?;
    let is_loopback = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let is_plain = is_set("tls", "off") || is_loopback && !is_set("tls", "required");
    let has_socket = url.query_pairs().any(|(name, _)| name == "socket");
    if host.contains(',') || !is_plain || has_socket {
        return None;
    }
    let address = format!("{host}:{}", url.port().unwrap_or(port));
    Some((address, url))
}

/// The names of the providers, by their gateways.
const PROVIDERS: [&str; 2] = ["gateway", "other"];
