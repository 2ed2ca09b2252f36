//! `smsq sandbox`: runs the practice gateway as a process of its own.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::fmt::friendly::SpanParser;
use serde_json::json;
use smsq_message::text::messages;
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_process::logging;
use smsq_sandbox::{Faults, Sandbox, SandboxConfig};
use url::Url;

use super::signals::SignalWatch;
use super::with_hint;

const EXAMPLES: &str = "\
Examples:
  smsq sandbox                                    on 127.0.0.1:8025, fast and without faults
  smsq sandbox --faults faults.toml               with lines such as `unavailable = \"5%\"`
  SMSQ__DEFAULT_PROVIDER=sandbox smsq send        (in another terminal) sends to it

GET /stats returns what it has received. Numbers that begin with +1 500 555 cause faults; the next digit says which:
  1xxx rejected: invalid     4xxx 429 once, then accepted          7xxx accepted, response cut off, once
  2xxx rejected: opted out   5xxx accepted, no response, once      8xxx 503 always
  3xxx 503 once              6xxx accepted, late response, once    9xxx 401 always (account)
  0xxx accepted, but a router in front of the gateway answers 503, once

Faults for all messages are keys of a TOML file. A share is \"5%\" or \"every 20\"; an outage is \"1000 for 5s\", \
which means after request 1,000 for 5 seconds:
  unavailable, unavailable_after, throttle, no_answer, slow, broken, late, short = SHARE
  refuse, outage = OUTAGE      retry_after, slow_for, late_for, forget_references_after = \"2s\"      account_from, seed = 7

Delivery receipts: GET /receipts returns each once, GET /messages?since=TIME the states of all messages. Keys of table \
[receipts] in that file:
  undelivered, expired, opted_out, missing, intermediate, out_of_order, doubled, per_part, failed_part, contradicting,
  early, foreign, unlisted, reject_late = SHARE                      delay, early_for = \"2s\"";

/// Run a practice gateway: it accepts messages over HTTP, and nothing leaves this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8025")]
    listen: SocketAddr,
    /// The time between a request and its response, such as 80ms
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0ms")]
    latency: Duration,
    /// A TOML file with faults
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Where delivery receipts are posted as a JSON list; without it they are only returned by GET /receipts
    #[arg(long, value_name = "URL", value_parser = http_url)]
    receipts_to: Option<Url>,
    /// Accept a known reference again, as gateways do that do not honour references
    #[arg(long)]
    ignore_references: bool,
    /// Append a line of JSON to this file for each message that arrives and for each acceptance
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

fn http_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http");
    url.ok_or("use a URL such as `http://127.0.0.1:8026/receipts`")
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    let span = SpanParser::new().parse_unsigned_duration(text);
    span.map_err(|_| "use a duration such as `80ms`, `30s` or `2h`")
}

/// Runs until a signal.
pub(crate) async fn run(
    args: &Args,
    console: &Console,
    signals: &SignalWatch,
) -> anyhow::Result<Exit> {
    logging::start(logging::Config::default(), console);
    let faults = match &args.faults {
        Some(file) => {
            let name = file.display().to_string();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read `{name}`"))?;
            Faults::from_toml(&name, &text)?
        }
        None => Faults::default(),
    };
    let log = args.log.as_ref().map(|path| {
        let mut options = OpenOptions::new();
        // Only its owner may read it: phones are personal data.
        let opened = options.append(true).create(true).mode(0o600).open(path);
        opened.with_context(|| format!("cannot write `{}`", path.display()))
    });
    let config = SandboxConfig {
        latency: args.latency,
        faults,
        receipts_to: args.receipts_to.clone(),
        ignore_references: args.ignore_references,
        log: log.transpose()?.map(Arc::new),
        ..SandboxConfig::default()
    };
    let mut signals = signals.listen();
    let listen = args.listen;
    let sandbox = Sandbox::start(listen, config).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => with_hint(
            format!("`{listen}` is in use by another program"),
            "choose another port with `--listen`",
        ),
        _ => anyhow!("cannot listen on `{listen}`: {error}"),
    })?;
    let url = sandbox.url();
    let line = if console.is_json { json!({ "url": url }).to_string() } else { url };
    console.print(&format!("{line}\n"))?;
    console.status("practice gateway: nothing leaves this machine; Ctrl-C ends it");
    signals.next().await;
    let stats = sandbox.stats();
    sandbox.stop().await;
    console.status(&format!("{} requests, {} accepted", stats.requests, messages(stats.accepted)));
    Ok(Exit::Done)
}
