//! The practice gateway inside the test process, whose counts can be read at any time, and the configuration of
//! providers that send to it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use smsq_sandbox::{AcceptedMessage, Faults, MessageOutcome, Sandbox, SandboxConfig, Stats};
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

pub(crate) fn with_faults(faults: Faults) -> SandboxConfig {
    SandboxConfig { faults, ..SandboxConfig::default() }
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

    /// The practice provider, which honours references; `more`: further keys of its section.
    pub(crate) fn with_references(&self, more: &str) -> Setup {
        Setup::with_references_at(&self.url(), more)
    }

    /// A provider that honours no references and never accepts with a 503, like the gateway's `overloaded`; `more`:
    /// further keys of its section.
    pub(crate) fn without_references(&self, more: &str) -> Setup {
        self.in_doubt(&format!("certain_status = [503]\n{more}"))
    }

    /// The same for a provider of which nothing is known: after a 503 it may have accepted the message.
    pub(crate) fn in_doubt(&self, more: &str) -> Setup {
        let url = self.url();
        Setup::of(&format!(
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
        ))
    }
}

/// The configuration of one provider and the database, from which a folder is made.
pub(crate) struct Setup {
    config: String,
    /// The URL of the database, if it is not `smsq.db` in the folder.
    database: Option<String>,
}

impl Setup {
    fn of(section: &str) -> Self {
        Self { config: format!("{QUICK}{section}"), database: None }
    }

    /// [`Practice::with_references`] with the URL of a proxy.
    pub(crate) fn with_references_at(url: &str, more: &str) -> Self {
        Self::of(&format!("[providers.practice]\nkind = \"sandbox\"\nurl = \"{url}\"\n{more}\n"))
    }

    /// Uses the database at this URL.
    pub(crate) fn at(self, database: &str) -> Self {
        Self { database: Some(database.to_owned()), ..self }
    }

    /// A folder with the configuration.
    pub(crate) fn scratch(self) -> Scratch {
        let scratch = self.database.as_deref().map_or_else(Scratch::new, Scratch::at);
        self.configure(&scratch);
        scratch
    }

    /// A folder with the configuration, after the import of a list into campaign `c`.
    pub(crate) fn imported(self, list: &str) -> Scratch {
        let scratch = self.scratch();
        scratch.import(list);
        scratch
    }

    /// Writes the configuration into a folder that is there.
    pub(crate) fn configure(&self, scratch: &Scratch) {
        scratch.write("smsq.toml", &self.config);
    }
}

/// One list with the rows of several.
pub(crate) fn joined(lists: &[String]) -> String {
    let rows = lists.iter().flat_map(|list| list.split_inclusive('\n').skip(1));
    std::iter::once("phone\n").chain(rows).collect()
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
