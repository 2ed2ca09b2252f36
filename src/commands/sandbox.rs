//! `smsq sandbox`: the practice gateway as a process of its own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::signals;
use crate::console::Console;
use crate::exit::Exit;
use crate::logging;
use crate::sandbox::{Away, Behaviour, Faults, Sandbox, Share};
use crate::text::messages;

const EXAMPLES: &str = "\
Examples:
  smsq sandbox                                    on 127.0.0.1:8025, quick and faultless
  smsq sandbox --latency 80ms --unavailable 5% --throttle 'every 50'
  smsq sandbox --refuse '1000 for 10s'            away for 10 s after 1,000 requests
  SMSQ__DEFAULT_PROVIDER=sandbox smsq send        (in another terminal) sends to it

GET /stats tells what it has seen. A recipient +1 500 555 and four digits is reserved for faults; the first digit says which:
  1xxx rejected: invalid     4xxx 429 once, then accepted          7xxx accepted, the answer cut, once
  2xxx rejected: opted out   5xxx accepted, but no answer, once    8xxx 503 always
  3xxx 503 once, then fine   6xxx accepted, answered late, once    9xxx 401 always: the account

A SHARE is `5%` or `every 20`; an AWAY is `1000 for 5s`: after request 1000, for 5 seconds.";

/// Run a practice gateway: it takes messages over real HTTP, and nothing leaves this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where it listens; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8025")]
    listen: SocketAddr,
    /// Between a request and its answer, like 80ms
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "0ms")]
    latency: Duration,
    /// Up to so much is added to the latency
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "0ms")]
    jitter: Duration,
    /// So many messages in any second; more are answered 429
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroU32>,
    /// Take the same reference again as a new message
    #[arg(long)]
    ignore_references: bool,
    /// A list with a message that is rejected is turned down as a whole
    #[arg(long)]
    all_or_none: bool,
    /// The faults below as a TOML file: `unavailable = "5%"`
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Answered 503, not accepted
    #[arg(long, value_name = "SHARE")]
    unavailable: Option<Share>,
    /// Answered 429 with Retry-After, not accepted
    #[arg(long, value_name = "SHARE")]
    throttle: Option<Share>,
    /// What Retry-After says [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    retry_after: Option<Duration>,
    /// Accepted, then the connection is dropped
    #[arg(long, value_name = "SHARE")]
    no_answer: Option<Share>,
    /// Accepted, and answered late
    #[arg(long, value_name = "SHARE")]
    slow: Option<Share>,
    /// How late [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    slow_for: Option<Duration>,
    /// Accepted, and the answer's body is cut
    #[arg(long, value_name = "SHARE")]
    broken: Option<Share>,
    /// Accepted, and the answer to a list has only half of its results; a share of the lists
    #[arg(long, value_name = "SHARE")]
    short: Option<Share>,
    /// No connection can be made for a while
    #[arg(long, value_name = "AWAY")]
    refuse: Option<Away>,
    /// Everything is answered 503 for a while
    #[arg(long, value_name = "AWAY")]
    outage: Option<Away>,
    /// This request and every later one is answered 401
    #[arg(long, value_name = "N")]
    account_from: Option<u64>,
    /// Another seed hits other requests [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn span(text: &str) -> Result<Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| "write it like `80ms`, `30s` or `2h`".to_owned())
}

impl Args {
    fn behaviour(&self) -> anyhow::Result<Behaviour> {
        let mut faults = match &self.faults {
            Some(file) => {
                let shown = file.display();
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read `{shown}`"))?;
                Faults::from_toml(&shown.to_string(), &text)?
            }
            None => Faults::default(),
        };
        faults.seed = self.seed.unwrap_or(faults.seed);
        faults.unavailable = self.unavailable.unwrap_or(faults.unavailable);
        faults.throttle = self.throttle.unwrap_or(faults.throttle);
        faults.retry_after = self.retry_after.unwrap_or(faults.retry_after);
        faults.no_answer = self.no_answer.unwrap_or(faults.no_answer);
        faults.slow = self.slow.unwrap_or(faults.slow);
        faults.slow_for = self.slow_for.unwrap_or(faults.slow_for);
        faults.broken = self.broken.unwrap_or(faults.broken);
        faults.short = self.short.unwrap_or(faults.short);
        faults.refuse = self.refuse.or(faults.refuse);
        faults.outage = self.outage.or(faults.outage);
        faults.account_from = self.account_from.or(faults.account_from);
        Ok(Behaviour {
            latency: self.latency,
            jitter: self.jitter,
            faults,
            honour_references: !self.ignore_references,
            all_or_none: self.all_or_none,
            limit: self.limit,
        })
    }
}

/// Runs until a signal; that is how it is meant to end.
pub(crate) async fn run(args: &Args, console: &Console) -> anyhow::Result<Exit> {
    logging::start(logging::Config::default(), console);
    let mut signals = signals::Signals::listen()?;
    let sandbox = Sandbox::start(args.listen, args.behaviour()?)?;
    let url = sandbox.url();
    if console.is_json {
        console.print(&format!("{}\n", json!({ "url": url })))?;
    } else {
        console.print(&format!("{url}\n"))?;
    }
    console.status("practice gateway: nothing leaves this machine; Ctrl-C ends it");
    signals.next().await;
    let stats = sandbox.stats();
    sandbox.stop().await;
    console.status(&format!(
        "{} requests, {} accepted",
        stats.requests,
        messages(stats.accepted)
    ));
    Ok(Exit::Done)
}
