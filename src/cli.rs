//! The command line: the flags of every command, and the list of commands.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use smsq_process::console::{Console, Verbosity};
use smsq_process::exit::Exit;
use smsq_process::jobs::Jobs;
use smsq_process::logging;

use crate::commands::signals::SignalWatch;
use crate::commands::{
    self, Context, Format, approve, campaign, check, completions, hooks, import, init, man, prove,
    providers, purge, receipts, report, retry, run, sandbox, schedule, send, serve, set, settle,
    status, suppress,
};
use crate::config::{Environment, Flags};

const EXAMPLES: &str = "\
Examples:
  smsq run --practice list.csv --text Hi           try it on this machine; no phone gets a message
  smsq init                                        write smsq.toml, to describe your provider
  smsq import list.csv --text \"Hi {{ name }}\" --dry-run
  smsq send --rate 50/s
  smsq report --failed --format csv --output failed.csv

Exit status: 0 done; 1 done, but some messages failed or are unknown, or no row of a list could be used; 2 could not run; 3 stopped \
before the end, fix the cause and `send` again; 130 and 143 stopped by a signal.";

/// Sends a campaign of text messages from a list, through any SMS HTTP API: loses no message, sends none twice,
/// respects rate limits, and reports who was not reached and why.
#[derive(Debug, Parser)]
#[command(name = "smsq", version, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The configuration file [default: `$SMSQ_CONFIG`, `./smsq.toml`, or `smsq/smsq.toml` in the user's config folder]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database, such as `sqlite://smsq.db` [default: setting `database.url`]
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// How data is printed: text or json; for `report` also csv or html
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    #[arg(hide_possible_values = true, value_parser = formats())]
    format: Format,
    /// Print more: each message (-v), internal events (-vv)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Suppress progress and informational messages
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["text", "json", "csv", "html"]).map(|name| match name.as_str() {
        "json" => Format::Json,
        "csv" => Format::Csv,
        "html" => Format::Html,
        _ => Format::Text,
    })
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Import(import::Args),
    Schedule(schedule::Args),
    Send(send::Args),
    Status(status::Args),
    Receipts(receipts::Args),
    Report(report::Args),
    Retry(retry::Args),
    Settle(settle::Args),
    Set(set::Args),
    /// Pause a campaign: its messages wait until `resume`; requests in flight are still settled
    #[command(after_help = "Example:\n  smsq pause welcome-3f2a91")]
    Pause(campaign::Args),
    /// Continue a paused, stopped or cancelled campaign; messages that were cancelled stay cancelled
    #[command(after_help = "Example:\n  smsq resume welcome-3f2a91 && smsq send")]
    Resume(campaign::Args),
    Approve(approve::Args),
    /// Cancel a campaign, without asking: what was not sent will not be, and can be imported again
    #[command(after_help = "Example:\n  smsq cancel welcome-3f2a91")]
    Cancel(campaign::Args),
    Suppress(suppress::Args),
    Purge(purge::Args),
    Providers(providers::Args),
    Hooks(hooks::Args),
    Init(init::Args),
    Check(check::Args),
    Serve(serve::Args),
    Sandbox(sandbox::Args),
    Prove(prove::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Cli {
    /// Parses the arguments of the process.
    pub fn parse_arguments() -> Result<Self, clap::Error> {
        let cli = Self::try_parse()?;
        let is_for_report = matches!(cli.global.format, Format::Csv | Format::Html);
        if is_for_report && !matches!(cli.command, Command::Report(_)) {
            let message = "`--format csv` and `--format html` are for `smsq report`; other commands print \
                           `text` or `json`";
            return Err(Self::command().error(ErrorKind::InvalidValue, message));
        }
        Ok(cli)
    }

    pub fn console(&self) -> Console {
        let verbosity = match (self.global.quiet, self.global.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, _) => Verbosity::Verbose,
        };
        Console::new(verbosity, self.global.format == Format::Json)
    }

    /// Warns about urls on the command line with a password: other users can read a process's arguments.
    pub fn warn_of_passwords(&self, console: &Console) {
        let database = self.global.database.as_deref();
        let redis = match &self.command {
            Command::Import(args) => args.redis_url(),
            _ => None,
        };
        let source = match &self.command {
            Command::Import(args) => args.source(),
            Command::Schedule(args) => args.source(),
            _ => None,
        };
        let warn = |place: &str, alternatives: &str| {
            console.warn(&format!(
                "the password in {place} is visible to other users of this machine; use {alternatives}"
            ));
        };
        if database.is_some_and(has_password) {
            warn("`--database`", "SMSQ__DATABASE__PASSWORD or `database.password_file`");
        }
        if source.is_some_and(has_password) {
            warn("`--from`", "`--from NAME` and a section `[sources.NAME]`");
        }
        if redis.is_some_and(has_password) {
            warn("the redis:// url", "SMSQ__REDIS__PASSWORD or `redis.password`");
        }
    }

    /// Runs the command on a runtime of its own. Not `async`: a caller in another crate would compile the code
    /// of every command again.
    pub fn run(self, console: Console) -> anyhow::Result<Exit> {
        let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(threads)
            .build()?;
        let jobs = Jobs::default();
        let (ended, is_closed) = runtime.block_on(async {
            let ended = match SignalWatch::start(console.clone(), jobs.stop().clone()) {
                Ok(signals) => Box::pin(self.execute(console, signals, jobs.clone())).await,
                Err(error) => Err(error.into()),
            };
            (ended, commands::all_ended(&jobs).await)
        });
        if is_closed {
            runtime.shutdown_timeout(jobs.stop().left());
        } else {
            // A statement still blocks a thread. Its task must not find a runtime without timers.
            std::mem::forget(runtime);
        }
        ended
    }

    /// `init`, `completions`, `man`, `sandbox` and `prove` do not read the configuration, so they run also if it is invalid.
    async fn execute(
        self,
        console: Console,
        signals: SignalWatch,
        jobs: Jobs,
    ) -> anyhow::Result<Exit> {
        match &self.command {
            Command::Init(args) => return init::run(args, &console),
            Command::Completions(args) => {
                return completions::run(args, &console, &mut Self::command());
            }
            Command::Man(args) => return man::run(args, &console, Self::command()),
            Command::Sandbox(args) => return sandbox::run(args, &console, &signals).await,
            Command::Prove(args) => {
                let database = self.global.database.clone();
                return prove::run(args, database, &console, &signals).await;
            }
            _ => {}
        }
        let context = Context::load(
            console,
            self.global.format,
            &self.flags(),
            environment(),
            signals,
            jobs,
        )?;
        let mut log = context.config.log;
        log.level = log.level.adjusted(self.global.verbose, self.global.quiet);
        logging::start(log, &context.console);
        match self.command {
            Command::Run(args) => run::run(&args, context).await,
            Command::Import(args) => import::run(&args, &context).await,
            Command::Schedule(args) => schedule::run(&args, &context).await,
            Command::Send(args) => send::run(&args, context).await,
            Command::Status(args) => status::run(&args, &context).await,
            Command::Receipts(args) => receipts::run(&args, &context).await,
            Command::Report(args) => report::run(&args, &context).await,
            Command::Retry(args) => retry::run(&args, &context).await,
            Command::Settle(args) => settle::run(&args, &context).await,
            Command::Set(args) => set::run(&args, &context).await,
            Command::Pause(args) => campaign::pause(&args, &context).await,
            Command::Resume(args) => campaign::resume(&args, &context).await,
            Command::Approve(args) => approve::run(&args, &context).await,
            Command::Cancel(args) => campaign::cancel(&args, &context).await,
            Command::Suppress(args) => suppress::run(&args, &context).await,
            Command::Purge(args) => purge::run(&args, &context).await,
            Command::Providers(args) => providers::run(&args, &context).await,
            Command::Hooks(args) => hooks::run(&args, &context).await,
            Command::Check(args) => check::run(&args, &context).await,
            Command::Serve(args) => serve::run(&args, context).await,
            Command::Init(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Sandbox(_)
            | Command::Prove(_) => Ok(Exit::Done),
        }
    }

    /// The flags that override settings.
    fn flags(&self) -> Flags {
        let worker = match &self.command {
            Command::Send(args) => Some(&args.flags.worker),
            Command::Run(args) => Some(&args.flags.worker),
            Command::Serve(args) => Some(&args.worker),
            _ => None,
        };
        Flags {
            config: self.global.config.clone(),
            database: self.global.database.clone(),
            concurrency: worker.and_then(|flags| flags.concurrency),
            on_unknown: worker.and_then(|flags| flags.on_unknown.clone()),
            listen: match &self.command {
                Command::Serve(args) => args.listen,
                _ => None,
            },
        }
    }
}

/// Whether a url has a password. The path of a `sqlite://` url may contain `:` and `@`. An unencoded `/` or `?`
/// may be part of the password: it ends at the last `@`.
fn has_password(url: &str) -> bool {
    let login = url
        .split_once("://")
        .filter(|(scheme, _)| *scheme != "sqlite")
        .and_then(|(_, rest)| rest.rsplit_once('@'));
    let password = login.and_then(|(login, _)| login.split_once(':'));
    password.is_some_and(|(user, password)| !user.contains(['/', '?']) && !password.is_empty())
}

/// Whether the arguments ask for JSON; for errors of the arguments themselves.
pub fn wants_json() -> bool {
    let arguments: Vec<_> = std::env::args_os().collect();
    arguments.iter().any(|argument| argument == "--format=json")
        || arguments.windows(2).any(|pair| pair == ["--format", "json"])
}

/// The environment of the process. Invalid UTF-8 is replaced, so that an error can name the variable.
fn environment() -> Environment {
    std::env::vars_os()
        .map(|(name, value)| {
            let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let examples = command.get_after_help().cloned().unwrap_or_default().to_string();
            assert!(examples.contains(&format!("smsq {name}")), "{name} has no example");
            assert!(command.get_about().is_some(), "{name} does not say what it does");
        }
    }

    /// The terminal wraps them: lines that are broken in the source would be broken twice.
    #[test]
    fn paragraphs_below_the_options_are_one_line() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().cloned().unwrap_or_default().to_string();
            let is_prose = |line: &&str| !line.is_empty() && !line.starts_with("  ");
            for pair in help.lines().collect::<Vec<_>>().windows(2) {
                let is_broken = pair.iter().all(is_prose);
                assert!(!is_broken, "{}: {}", command.get_name(), pair[1]);
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn passwords_are_found_in_urls() {
        for url in [
            "mysql://me:p%40ss@host/queue",
            "postgres://me:p%40ss@a,b:1/queue?tls=off",
            "rediss://:p%40ss@host:6379/0",
            "mysql://me:hun/ter2@host/db",
            "mysql://me:hun@x/ter2@host/db",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "mysql://me@host/queue",
            "mysql://me:@host/queue",
            "postgres://me@a:1,b:2/queue",
            "sqlite://a:b@c.db",
            "redis://host:6379/0",
            "list.csv",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn global_flags_work_before_and_after_the_command() {
        for line in [["smsq", "--format", "json", "status"], ["smsq", "status", "--format", "json"]]
        {
            let cli = Cli::try_parse_from(line).expect("a good line");
            assert_eq!(cli.global.format, Format::Json);
        }
    }
}
