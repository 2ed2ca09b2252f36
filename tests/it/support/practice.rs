//! The practice gateway inside the test process, whose counts can be read at any time, and the configuration of
//! providers that send to it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use smsq_sandbox::{AcceptedMessage, MessageOutcome, Sandbox, SandboxConfig, Stats};
use tokio::runtime::Runtime;

use super::Scratch;
use super::held_answers::HeldAnswers;

/// Waits that are short enough for tests.
const QUICK: &str = "\
[retry]
first_wait = \"20ms\"
max_wait = \"200ms\"
[circuit_breaker]
first_probe = \"50ms\"
max_probe = \"200ms\"
";

/// Responses come after this time.
pub(crate) fn with_latency(millis: u64) -> SandboxConfig {
    SandboxConfig { latency: Duration::from_millis(millis), ..SandboxConfig::default() }
}

/// A gateway with its own runtime; both end with the test.
pub(crate) struct Practice {
    sandbox: Sandbox,
    held: Option<HeldAnswers>,
    // Dropped after the gateway.
    _runtime: Runtime,
}

impl Practice {
    pub(crate) fn start(config: SandboxConfig) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), config)
    }

    /// Holds all answers after these many until [`release`](Self::release).
    pub(crate) fn holding_after(answers: u64) -> Self {
        let gateway = Self::start(SandboxConfig::default());
        let held = HeldAnswers::start(gateway.address(), answers);
        Self { held: Some(held), ..gateway }
    }

    /// Lets the answers go, now and later.
    pub(crate) fn release(&self) {
        self.held.as_ref().expect("it holds answers").release();
    }

    pub(crate) fn start_at(address: SocketAddr, config: SandboxConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let inside = runtime.enter();
        let sandbox = Sandbox::start(address, config).expect("the gateway starts");
        drop(inside);
        Self { sandbox, held: None, _runtime: runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.sandbox.address()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.sandbox.stats()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.stats().requests
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.stats().accepted
    }

    pub(crate) fn messages(&self) -> Vec<AcceptedMessage> {
        self.sandbox.messages()
    }

    pub(crate) fn outcomes(&self) -> Vec<MessageOutcome> {
        self.sandbox.outcomes()
    }

    /// The phones of all accepted messages.
    pub(crate) fn phones(&self) -> BTreeSet<String> {
        self.messages().into_iter().map(|entry| entry.to).collect()
    }

    /// Checks that every message was accepted once.
    pub(crate) fn assert_each_once(&self, messages: u64) {
        let stats = self.stats();
        assert_eq!(stats.accepted, messages, "{stats:?}");
        assert_eq!(stats.distinct_recipients, messages, "{stats:?}");
        assert_eq!(stats.distinct_references, messages, "{stats:?}");
        assert_eq!(stats.repeated, 0, "{stats:?}");
    }

    /// Its address, without a path.
    pub(crate) fn url(&self) -> String {
        self.held.as_ref().map_or_else(|| self.sandbox.url(), HeldAnswers::url)
    }

    /// Configures the practice provider, which honours references; `more`: further keys of its section.
    pub(crate) fn configure_with_references(&self, scratch: &Scratch, more: &str) {
        Self::configure_with_references_at(&self.url(), scratch, more);
    }

    /// The same with the URL of a proxy.
    pub(crate) fn configure_with_references_at(url: &str, scratch: &Scratch, more: &str) {
        let section =
            format!("[providers.practice]\nkind = \"sandbox\"\nurl = \"{url}\"\n{more}\n");
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
    }

    /// Configures a provider that honours no references and never accepts with a 503, like the gateway's `overloaded`;
    /// `more`: further keys of its section.
    pub(crate) fn configure_without_references(&self, scratch: &Scratch, more: &str) {
        self.configure_in_doubt(scratch, &format!("certain_status = [503]\n{more}"));
    }

    /// The same for a provider of which nothing is known: after a 503 it may have accepted the message.
    pub(crate) fn configure_in_doubt(&self, scratch: &Scratch, more: &str) {
        let url = self.url();
        let section = format!(
            r#"
[providers.cellar]
kind = "generic"
url = "{url}/messages"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}", reference = "{{{{ reference }}}}" }}
accepted = [200, 201]
message_id = "/id"
error_code = "/error/code"
{more}
[providers.cellar.codes]
invalid_recipient = {{ class = "recipient", reason = "not a number that can be reached" }}
account_suspended = {{ class = "account", reason = "the account is suspended" }}
"#
        );
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
    }
}

/// A list of `rows` ordinary phones.
pub(crate) fn list(rows: u64) -> String {
    let phones = (0..rows).map(|row| format!("+4474{:08}\n", row + 10_010));
    std::iter::once("phone\n".to_owned()).chain(phones).collect()
}

/// A list of `rows` numbers, at most 1,000, that are reserved for the fault with this digit.
pub(crate) fn reserved_list(fault: u8, rows: u64) -> String {
    let phones = (0..rows).map(|row| format!("+1500555{fault}{row:03}\n"));
    std::iter::once("phone\n".to_owned()).chain(phones).collect()
}
