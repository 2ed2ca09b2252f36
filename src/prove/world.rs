//! What a round needs: gateways, two campaigns, a configuration, a database, and the commands that change them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_store::{Store, StoreError};

use super::child::{ChildEnvironment, Ending, Process};
use super::evidence::{LogFile, Tables};
use super::judge::JudgedCampaign;
use super::operators::{Operators, import, list_name, words};
use super::proxy::Proxy;
use super::{PROVIDERS, ProveConfig, ProveError};

/// A worker that is stopped for longer is dead.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// What a process without faults needs at most, on a slow machine, besides the time for the messages.
const PATIENCE: Duration = Duration::from_secs(180);
/// The most time for a message: several times what the limits need.
const FOR_A_MESSAGE: Duration = Duration::from_millis(60);
/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long smsq waits for a response.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long the gateway says that it remembers a reference, where it forgets them.
const REMEMBERED: Duration = Duration::from_secs(4);
/// A message may be accepted this long after it arrived.
pub(super) const ACCEPTED_LATE: Duration = Duration::from_millis(1_500);
/// The provider certainly knows a message this long after its request, where it answers lookups.
const ABSENT_AFTER: Duration = Duration::from_secs(4);
/// The limit of the provider, in messages a second, and of each campaign.
pub(super) const LIMIT: u64 = 100;
const CAMPAIGN_LIMITS: [u64; 2] = [80, 60];
/// Of each sender of a pool.
pub(super) const SENDER_LIMIT: u64 = 20;
const SENDERS: usize = 6;
/// What a message costs in a round with a budget, in the currency and in its hundredths.
const PRICE: &str = "0.03";
const CENTS: u64 = 3;
/// One of this many recipients is a number that the practice gateway rejects.
const REJECTED_EVERY: u64 = 30;

/// What the provider offers against doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It accepts one message per reference.
    References,
    /// For some seconds.
    References4s,
    /// It says whether it has accepted a reference.
    Lookups,
    Nothing,
}

const OFFERS: [Offer; 4] = [Offer::References, Offer::References4s, Offer::Lookups, Offer::Nothing];

/// What a round needs.
pub(super) struct World {
    pub(super) random: StdRng,
    pub(super) environment: ChildEnvironment,
    /// Used by some workers in place of the database's own address.
    pub(super) proxy: Option<(Proxy, String)>,
    pub(super) store: Store,
    /// Of each gateway.
    pub(super) logs: Vec<LogFile>,
    /// What workers connect to instead of the gateways, where a route has two of them.
    pub(super) doors: Vec<Proxy>,
    pub(super) campaigns: Vec<JudgedCampaign>,
    pub(super) operators: Operators,
    /// What happened, as text.
    pub(super) history: Vec<String>,
    /// What does not belong to a promise, but must not happen: a process that panics or never ends.
    pub(super) errors: Vec<String>,
    pub(super) tally: Tally,
    pub(super) thaws: Vec<u64>,
    /// What a process without faults needs at most.
    pub(super) patience: Duration,
    pub(super) offer: Offer,
    has_receipts: bool,
    /// The provider divides its messages among senders.
    pub(super) has_pool: bool,
    /// The first campaign can pay for this many messages only.
    pub(super) budget: Option<u64>,
    /// They end with the round.
    _gateways: Vec<Process>,
}

/// What was done to a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) kills: u64,
    pub(super) stops: u64,
    pub(super) signals: u64,
    pub(super) cuts: u64,
    pub(super) outages: u64,
    pub(super) commands: u64,
    /// The longest time from a kill until the messages of the killed worker were put right.
    pub(super) recovery: Duration,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.stops += other.stops;
        self.signals += other.signals;
        self.cuts += other.cuts;
        self.outages += other.outages;
        self.commands += other.commands;
        self.recovery = self.recovery.max(other.recovery);
    }
}

/// Which round it is.
#[derive(Clone, Debug)]
pub(super) struct RoundPlan {
    pub(super) seed: u64,
    /// Distinguishes its campaigns from those of other runs in the same database.
    pub(super) name: String,
    /// The number of the first phone.
    pub(super) first_phone: u64,
    pub(super) folder: PathBuf,
}

impl World {
    pub(super) async fn new(config: &ProveConfig, plan: &RoundPlan) -> Result<Self, ProveError> {
        fs::create_dir_all(&plan.folder)?;
        let mut random = StdRng::seed_from_u64(plan.seed);
        let offer = match &config.gateway {
            // What another gateway offers is not known.
            Some(_) => Offer::Nothing,
            None => OFFERS[random.random_range(0..OFFERS.len())],
        };
        let has_receipts = config.gateway.is_none() && random.random_bool(0.3);
        let has_pool = config.gateway.is_none() && random.random_bool(0.4);
        let has_route = config.gateway.is_none() && random.random_bool(0.4);
        let has_budget = config.gateway.is_none() && random.random_bool(0.4);
        let database = match &config.database {
            Some(url) => url.clone(),
            None => format!("sqlite://{}", plan.folder.join("smsq.db").display()),
        };
        let environment = ChildEnvironment { folder: plan.folder.clone(), database };
        let campaigns = campaigns(config, plan);
        let (mut gateways, mut urls, mut logs, mut doors) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if let Some((url, log)) = &config.gateway {
            let phones = campaigns.iter().flat_map(|campaign| campaign.phones.clone()).collect();
            logs.push(LogFile::from_end(0, log.clone(), Some(phones)));
            urls.push(url.to_string());
        } else {
            for index in 0..=usize::from(has_route) {
                let name = format!("gateway-{index}.jsonl");
                let log = LogFile::from_end(index, plan.folder.join(&name), None);
                let started = start_gateway(&environment, offer, plan.seed, &name, &mut random);
                let (gateway, url) = started.await?;
                gateways.push(gateway);
                logs.push(log);
                if has_route {
                    let door = Proxy::start(url.trim_start_matches("http://"))?;
                    urls.push(format!("http://{}", door.address()));
                    doors.push(door);
                } else {
                    urls.push(url);
                }
            }
        }
        let mut toml = settings(&urls, offer, has_receipts, has_pool);
        let priced = PROVIDERS.iter().zip(&urls).filter(|_| has_budget);
        toml.extend(
            priced
                .map(|(name, _)| format!("[prices.{name}]\ncurrency = \"EUR\"\nother = {PRICE}\n")),
        );
        let budget = has_budget.then(|| campaigns[0].phones.len() as u64 * 6 / 10);
        fs::write(plan.folder.join("smsq.toml"), toml)?;
        // Others may crash the server.
        let store = patiently(PATIENCE, || config.open(&environment.database)).await?;
        let world = Self {
            random,
            proxy: config.start_proxy()?,
            store,
            logs,
            doors,
            operators: Operators::new(campaigns.len(), has_pool),
            campaigns,
            history: Vec::new(),
            errors: Vec::new(),
            tally: Tally::default(),
            thaws: Vec::new(),
            patience: PATIENCE + FOR_A_MESSAGE * u32::try_from(config.messages).unwrap_or(u32::MAX),
            offer,
            has_receipts,
            has_pool,
            budget,
            environment,
            _gateways: gateways,
        };
        world.import_first_lists().await?;
        Ok(world)
    }

    /// Writes two lists for each campaign, and imports the first one.
    async fn import_first_lists(&self) -> Result<(), ProveError> {
        for (index, campaign) in self.campaigns.iter().enumerate() {
            let halves = campaign.phones.split_at(campaign.phones.len() / 2);
            for (list, phones) in [halves.0, halves.1].into_iter().enumerate() {
                let text: String = std::iter::once("phone\n".to_owned())
                    .chain(phones.iter().map(|phone| format!("{phone}\n")))
                    .collect();
                fs::write(self.environment.folder.join(list_name(index, list)), text)?;
            }
            self.must_end(&import(&self.campaigns, index, 0), &[0]).await?;
            let rate = format!("set {} --rate {}/s", campaign.name, campaign.limit);
            self.must_end(&rate, &[0]).await?;
        }
        if let Some(messages) = self.budget {
            let (name, cents) = (&self.campaigns[0].name, messages * CENTS);
            let amount = format!("{}.{:02}EUR", cents / 100, cents % 100);
            let line = format!("set {name} --budget {amount}");
            self.must_end(&line, &[0]).await?;
        }
        Ok(())
    }

    /// Runs a command until it ends with one of these codes: nothing disturbs it, except a database that is unavailable for
    /// a while.
    pub(super) async fn must_end(&self, line: &str, codes: &[i32]) -> Result<Ending, ProveError> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(ending) = self.try_command(line, codes, deadline).await? {
                return Ok(ending);
            }
        }
    }

    /// Runs a command once; `None` if the database is unavailable before the deadline.
    pub(super) async fn try_command(
        &self,
        line: &str,
        codes: &[i32],
        deadline: Instant,
    ) -> Result<Option<Ending>, ProveError> {
        let mut process = self.environment.start(&words(line))?;
        let problem = match process.ended(self.patience).await? {
            Some(ending) if ending.code.is_some_and(|code| codes.contains(&code)) => {
                return Ok(Some(ending));
            }
            Some(ending) => format!("ended with {:?}: {}", ending.code, ending.stderr.trim()),
            None => "does not end".to_owned(),
        };
        let is_away = problem.starts_with("ended with Some(2)");
        if !is_away || Instant::now() > deadline {
            return Err(ProveError::Command(format!("{} {problem}", process.name)));
        }
        tokio::time::sleep(AGAIN).await;
        Ok(None)
    }

    /// Reads the tables, as soon as the database is there.
    pub(super) async fn tables(&self) -> Result<Tables, ProveError> {
        let names: Vec<String> =
            self.campaigns.iter().map(|campaign| campaign.name.clone()).collect();
        let read = || Tables::read(&self.store, &names);
        Ok(patiently(self.patience, read).await?)
    }

    /// Reads what the gateways have logged since the last time.
    pub(super) fn update_logs(&mut self) -> io::Result<()> {
        self.logs.iter_mut().try_for_each(LogFile::update)
    }

    /// How many requests the gateways have logged.
    pub(super) fn arrived(&self) -> usize {
        self.logs.iter().map(|file| file.log.arrivals.len()).sum()
    }

    /// Adds a line to the history.
    pub(super) fn record(&mut self, what: &str) {
        let now = jiff::Timestamp::now();
        self.history.push(format!("{now:.3} {what}"));
    }

    /// Unknown messages: their campaigns and phones.
    pub(super) async fn unknown(&self) -> Vec<(String, String)> {
        let sql = "SELECT concat_ws('|', c.name, m.phone) AS value FROM sms m \
                   JOIN campaign c ON c.id = m.campaign_id WHERE m.state = 2";
        // The database may be away.
        let found = self.store.query(sql).await.unwrap_or_default();
        let pairs = found.iter().filter_map(|line| line.split_once('|'));
        pairs
            .filter(|(name, _)| self.campaigns.iter().any(|campaign| campaign.name == **name))
            .map(|(name, phone)| (name.to_owned(), phone.to_owned()))
            .collect()
    }

    /// How long a worker must be stopped until others may send its messages again. One that has just started waits for a
    /// lease before it declares others dead.
    pub(super) fn takeover(&self) -> Option<Duration> {
        (self.offer == Offer::Lookups).then_some(LEASE * 2 + ABSENT_AFTER)
    }

    /// A short description of the provider.
    pub(super) fn offers(&self) -> String {
        let receipts = if self.has_receipts { " + receipts" } else { "" };
        let pool = if self.has_pool { " + senders" } else { "" };
        let route = if self.doors.is_empty() { "" } else { " + route" };
        let budget = self.budget.map_or("", |_| " + budget");
        format!("{:?}{receipts}{pool}{route}{budget}", self.offer).to_lowercase()
    }
}

/// Repeats what a database does not answer, for at most this long.
async fn patiently<T, F>(patience: Duration, work: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + patience;
    loop {
        match work().await {
            Err(error) if error.is_temporary() && Instant::now() < deadline => {
                tokio::time::sleep(AGAIN).await;
            }
            done => return done,
        }
    }
}

/// The campaigns of a round; each phone is in one of them.
fn campaigns(config: &ProveConfig, plan: &RoundPlan) -> Vec<JudgedCampaign> {
    let count = config.messages / CAMPAIGN_LIMITS.len() as u64;
    let campaign = |index: usize, limit: u64| {
        let first = plan.first_phone + index as u64 * count;
        let phones = (0..count).map(|row| {
            let number = first + row;
            let is_rejected = config.gateway.is_none() && row % REJECTED_EVERY == 7;
            if is_rejected {
                let number = index as u64 * 500 + row / REJECTED_EVERY;
                return format!("+15005551{:03}", number % 1_000);
            }
            format!("+44740{:07}", number % 10_000_000)
        });
        let distinct: BTreeSet<String> = phones.collect();
        JudgedCampaign {
            name: format!("{}-{}", plan.name, ["a", "b"][index]),
            phones: distinct.into_iter().collect(),
            limit,
        }
    };
    CAMPAIGN_LIMITS.into_iter().enumerate().map(|(index, limit)| campaign(index, limit)).collect()
}

/// Starts the practice gateway as a process; returns it with its URL.
async fn start_gateway(
    environment: &ChildEnvironment,
    offer: Offer,
    seed: u64,
    log: &str,
    random: &mut StdRng,
) -> Result<(Process, String), ProveError> {
    let late = ACCEPTED_LATE.as_millis();
    let slow = (TIMEOUT * 2).as_millis();
    let mut faults = format!(
        "seed = {seed}\nunavailable = \"2%\"\nunavailable_after = \"2%\"\nthrottle = \"0.4%\"\nno_answer = \"5%\"\n\
         slow = \"2%\"\nslow_for = \"{slow}ms\"\nbroken = \"1.5%\"\nlate = \"2%\"\nlate_for = \"{late}ms\"\n"
    );
    if offer == Offer::References4s {
        // A request that takes long still finds it.
        let span = (REMEMBERED + TIMEOUT + ACCEPTED_LATE).as_millis();
        // Writing to a string does not fail.
        let _ = writeln!(faults, "forget_references_after = \"{span}ms\"");
    }
    faults += "[receipts]\ndelay = \"200ms\"\nreject_late = \"1%\"\n";
    fs::write(environment.folder.join("faults.toml"), faults)?;
    // While a request takes long, more can happen to its message.
    let is_slow = random.random_bool(0.3);
    let latency = random.random_range(if is_slow { 200..700 } else { 5..80 });
    let mut line = format!(
        "sandbox --listen 127.0.0.1:0 --faults faults.toml --latency {latency}ms --log {log}"
    );
    if matches!(offer, Offer::Lookups | Offer::Nothing) {
        line += " --ignore-references";
    }
    let mut gateway = environment.start(&words(&line))?;
    let Some(url) = gateway.first_line().await? else {
        let problem = gateway.ending()?.stderr;
        let problem = format!("the practice gateway does not start: {problem}");
        return Err(ProveError::Command(problem));
    };
    Ok((gateway, url))
}

/// The configuration of the workers: a provider for each gateway, and a route where there are several.
fn settings(urls: &[String], offer: Offer, has_receipts: bool, has_pool: bool) -> String {
    let lease = LEASE.as_secs();
    let names = PROVIDERS.iter().zip(urls);
    let providers: String =
        names.map(|(name, url)| provider(name, url, offer, has_receipts, has_pool)).collect();
    let default = if urls.len() > 1 { "main" } else { PROVIDERS[0] };
    let [one, other] = PROVIDERS;
    let route = format!(
        r#"
[routes.main]
first = [{{ prefix = ["44"], provider = "{one}" }}, {{ prefix = ["44"], provider = "{other}" }}]
else = "{one}"
fallback = ["{one}", "{other}"]
fallback_after = "50ms"
"#
    );
    let route = if urls.len() > 1 { &*route } else { "" };
    format!(
        r#"default_provider = "{default}"
[sender]
concurrency = 16
lease = "{lease}s"
[retry]
first_wait = "20ms"
max_wait = "200ms"
[circuit_breaker]
first_probe = "50ms"
max_probe = "200ms"
{providers}{route}"#
    )
}

/// The section of one provider.
fn provider(name: &str, url: &str, offer: Offer, has_receipts: bool, has_pool: bool) -> String {
    let timeout = TIMEOUT.as_millis();
    let honours = match offer {
        Offer::References => "honours_reference = true".to_owned(),
        Offer::References4s => {
            let span = REMEMBERED.as_millis();
            format!("honours_reference = true\nhonoured_for = \"{span}ms\"")
        }
        Offer::Lookups | Offer::Nothing => "honours_reference = false".to_owned(),
    };
    let sender = |number| format!("{{ from = \"{number}\", rate = \"{SENDER_LIMIT}/s\" }}");
    let senders: Vec<String> = (0..SENDERS).filter(|_| has_pool).map(sender).collect();
    let senders = format!("senders = [{}]\n", senders.join(", "));
    let absent_after = ABSENT_AFTER.as_millis();
    let lookup = format!(
        r#"
[providers.{name}.lookup]
url = "{url}/messages"
query = {{ reference = "{{{{ reference }}}}" }}
list = ""
matches = {{ "/reference" = "{{{{ reference }}}}" }}
message_id = "/id"
more = false
horizon = "24h"
rate = "50/s"
after = "200ms"
absent_after = "{absent_after}ms"
"#
    );
    let lookup = if offer == Offer::Lookups { lookup } else { String::new() };
    let receipts = if has_receipts {
        format!("[providers.{name}.receipts]\nenabled = true\n")
    } else {
        String::new()
    };
    format!(
        r#"[providers.{name}]
kind = "sandbox"
url = "{url}"
{honours}
timeout = "{timeout}ms"
rate = "{LIMIT}/s"
{senders}{lookup}{receipts}"#
    )
}

/// Microseconds since the Unix epoch.
pub(super) fn now_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}
