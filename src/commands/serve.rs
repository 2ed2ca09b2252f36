//! `smsq serve`: runs the server; and makes tokens and URLs for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;
use smsq_metrics::Metrics;
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_process::service_manager::ServiceManager;
use smsq_provider::Provider;
use smsq_serve::{AccessToken, Listener, Role, Server, ServerParts, receipt_url};
use smsq_store::{Access, Store};
use url::Url;

use super::findings::{
    open_without_token, unchecked_receipts, unencrypted, warn_of_unsafe_settings,
};
use super::hooks::Delivering;
use super::practice::{Practice, PracticeRequest, no_provider};
use super::schedule::{self, RunningScheduler};
use super::send::{Aborted, PreparedRun, SendFlags, SendOptions, WorkerFlags};
use super::signals::Signals;
use super::{Context, data_folder, purge, temporary, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq serve                                     prints a link to the page at a terminal, for this machine
  smsq serve token manager --role read           a read-only token, and its line for smsq.toml
  smsq serve --listen 10.0.0.5:8026              for others too; needs a token
  smsq serve --send                              also send what is queued: the whole system in one process
  smsq serve --send --practice                   try it: no phone gets a message
  smsq serve urls                                where each provider posts its delivery receipts

Workers never need it: start and stop it at any time. With --send the first Ctrl-C settles what is in flight; a \
second one does not wait.";

/// Run a server: a page to watch, an API for messages, receipts by webhook, metrics
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// The address to listen on; port 0 selects a free port [default: setting `serve.listen`]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Also run a worker that sends what is queued, like `smsq send --follow`
    #[arg(long)]
    send: bool,
    #[command(flatten, next_help_heading = "Options of --send")]
    pub(crate) worker: WorkerFlags,
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Make a token, and print it with its line for the configuration
    #[command(after_help = "Example:\n  smsq serve token shop --role send")]
    Token {
        /// Who it is for; the name is shown with what its owner changes
        name: String,
        /// read: look, without phones; operate: also control campaigns; send: only add messages; admin: all
        #[arg(long, value_parser = roles())]
        role: Role,
    },
    /// Print the URL for the delivery receipts of each provider
    #[command(after_help = "Example:\n  smsq serve urls")]
    Urls,
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|word| word.parse::<Role>())
}

pub(crate) async fn run(args: &Args, context: Context) -> anyhow::Result<Exit> {
    match &args.command {
        Some(Sub::Token { name, role }) => token(name, *role, &context),
        Some(Sub::Urls) => urls(&context),
        None => serve(args, context).await,
    }
}

fn token(name: &str, role: Role, context: &Context) -> anyhow::Result<Exit> {
    let (text, token) = AccessToken::generate(name, role).map_err(|problem| anyhow!(problem))?;
    let object = json!({ "token": text, "config": token.to_string() });
    context.print(&format!("{text}\n"), &object)?;
    context.console.status(&format!(
        "the token is shown only now; add its hash to `tokens` in section [serve] of smsq.toml, and restart `smsq serve`:\n\
         [serve]\ntokens = [\"{token}\"]"
    ));
    Ok(Exit::Done)
}

/// The URL under which others reach the server.
fn base_url(context: &Context) -> Url {
    let config = &context.config.serve;
    config.public_url.clone().unwrap_or_else(|| {
        let url = format!("http://{}/", config.listen);
        Url::parse(&url).expect("an address is a host")
    })
}

fn urls(context: &Context) -> anyhow::Result<Exit> {
    let config = &context.config;
    let Some(key) = config.serve.receipt_key() else {
        let key =
            AccessToken::generate("receipts", Role::Send).map(|(text, _)| text).unwrap_or_default();
        return Err(with_hint(
            "`serve.receipt_key` is not set: the URLs for receipts are made from it",
            format!("set a long random text, for example SMSQ__SERVE__RECEIPT_KEY={key}"),
        ));
    };
    let base = base_url(context);
    let providers = webhook_providers(context);
    if providers.is_empty() {
        return Err(with_hint(
            "no configured provider posts receipts",
            "`smsq providers list` shows how receipts come",
        ));
    }
    let urls: BTreeMap<&String, String> =
        providers.keys().map(|name| (name, receipt_url(&base, key, name).to_string())).collect();
    let lines = urls.iter().map(|(name, url)| format!("{name}  {url}\n"));
    context.print(&lines.collect::<String>(), &json!(urls))?;
    if config.serve.public_url.is_none()
        && base.host_str().is_some_and(|host| host.starts_with("127."))
    {
        context.console.status(
            "only this machine reaches these URLs: set `serve.public_url` if vendors are to post to them",
        );
    }
    Ok(Exit::Done)
}

/// The configured providers whose receipts can be posted.
fn webhook_providers(context: &Context) -> BTreeMap<String, Arc<Provider>> {
    let config = &context.config;
    let mut names: BTreeSet<String> = config.own_providers.iter().cloned().collect();
    let default = config.default_provider.iter();
    names.extend(default.flat_map(|name| config.providers_of(name)).map(str::to_owned));
    let mut providers = BTreeMap::new();
    for name in names {
        // One that is misconfigured must not stop the others.
        match context.provider(&name) {
            Ok(provider) if provider.webhook().is_some() => {
                if let Some(doubt) = unchecked_receipts(context, &provider) {
                    context.console.warn(&doubt);
                }
                providers.insert(name, provider);
            }
            Ok(_) => {}
            Err(error) => context.console.warn(&format!("{error:#}")),
        }
    }
    providers
}

async fn serve(args: &Args, mut context: Context) -> anyhow::Result<Exit> {
    if let Some(flag) = args.worker.first_set().filter(|_| !args.send) {
        return Err(with_hint(
            format!("`{flag}` is for a worker, and none is started"),
            "add `--send`",
        ));
    }
    let has_tokens = !context.config.serve.tokens.expose().is_empty();
    let request = PracticeRequest {
        is_asked: args.worker.practice,
        provider: None,
        unattended: has_tokens.then_some("serve.tokens"),
    };
    let practice = if args.send { Practice::start(&mut context, &request)? } else { None };
    let ended = serve_and_send(args, &context, practice.as_ref()).await;
    if let Some(practice) = practice {
        practice.stop().await;
    }
    ended
}

/// Opens the database. Fails if tokens let others add messages, and no provider will ever send them.
async fn open(args: &Args, context: &Context) -> anyhow::Result<Store> {
    let config = &context.config;
    let has_tokens = !config.serve.tokens.expose().is_empty();
    let has_provider = config.default_provider.is_some() || !config.own_providers.is_empty();
    if args.send || has_provider || !has_tokens {
        let store = context.open(Access::Create).await?;
        if args.send {
            purge::apply_retention(context, &store).await?;
        }
        return Ok(store);
    }
    match context.open(Access::Existing).await {
        Ok(store) if store.mode().is_practice() => Ok(store),
        Err(error) if temporary(&error).is_some() => Err(error),
        _ => Err(no_provider(Some("serve.tokens"))),
    }
}

/// Listens, and answers that the server is not ready until the database is open.
async fn open_and_listen(args: &Args, context: &Context) -> anyhow::Result<(Store, Listener)> {
    let listener = listen(&context.config.serve).await?;
    let store = {
        let _answering = listener.answer_not_ready();
        context.when_available(true, || open(args, context)).await?
    };
    Ok((store, listener))
}

/// Fails if the address is in use.
async fn listen(config: &smsq_serve::Config) -> anyhow::Result<Listener> {
    let listen = config.listen;
    let listener = Listener::bind(config).await;
    listener.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => with_hint(
            format!("`{listen}` is in use by another program"),
            "choose another port with `--listen`",
        ),
        _ => anyhow!("cannot listen on `{listen}`: {error}"),
    })
}

async fn serve_and_send(
    args: &Args,
    context: &Context,
    practice: Option<&Practice>,
) -> anyhow::Result<Exit> {
    let config = &context.config;
    let settings = config.serve.clone();
    let has_tokens = !settings.tokens.expose().is_empty();
    if let Some(error) = open_without_token(&settings) {
        return Err(error);
    }
    if let Some(warning) = unencrypted(&settings) {
        context.console.warn(warning);
    }
    let (store, listener) = open_and_listen(args, context).await?;
    if let Some(practice) = practice {
        context.console.status(&practice.notice(&store));
    }
    let metrics = Arc::new(Metrics::default());
    let flags = SendFlags { worker: args.worker.clone(), ..SendFlags::default() };
    let options = SendOptions { campaign: None, flags: &flags, follow: true, metrics: &metrics };
    // What keeps a worker from sending is said before the server answers.
    let worker = if args.send {
        warn_of_unsafe_settings(context, &store).await?;
        Some(PreparedRun::new(context, &store, &options).await?)
    } else {
        None
    };
    // Those of a worker are delivered by its run.
    let hooks = match worker {
        Some(_) => Vec::new(),
        None => context.hooks()?,
    };
    let mut signals = context.signals.listen();
    let schedules = RunningScheduler::start(context, &store).await?;
    let parts = ServerParts {
        uploads: data_folder(context, &store, "uploads").await?,
        jobs: context.jobs.clone(),
        scheduler: Arc::clone(&schedules.scheduler),
        store: store.clone(),
        providers: webhook_providers(context),
        default_region: config.default_region,
        dialling: config.dialling(),
        default_provider: config.default_provider.clone(),
        metrics: config.metrics,
        counted: Arc::clone(&metrics),
        prices: config.prices.clone(),
        no_report_after: config.receipts.no_report_after,
        lists: schedule::list_options(context),
        config: settings,
    };
    let server = Server::start(listener, parts);
    let address = announce(args, context, &server, has_tokens)?;
    let mut running = tokio::spawn(server.run());
    let delivering = Delivering::start(hooks, context, &store);
    let ended = if let Some(worker) = worker {
        send(worker, &mut signals, &context.console).await
    } else {
        let mut manager = ServiceManager::default();
        manager.ready();
        manager.status(&format!("listening on {address}"));
        signals.next().await;
        manager.stopping();
        Ok(Exit::Done)
    };
    // Where the worker ended without a signal.
    let stop = context.jobs.stop();
    stop.begin();
    if ended.as_ref().is_err_and(anyhow::Error::is::<Aborted>) {
        running.abort();
        return ended;
    }
    let ending = async {
        let delivered = async {
            if let Some(delivering) = delivering {
                delivering.end(false, context).await;
            }
        };
        // A panic in it has been logged.
        let _ = tokio::join!(delivered, schedules.stop(), &mut running);
    };
    let signal = tokio::select! {
        _ = stop.within(ending) => None,
        exit = signals.next() => Some(exit),
    };
    running.abort();
    signal.map_or(ended, Ok)
}

/// Prints the address, with a link at a terminal, and how to log in and stop; returns the address.
fn announce(
    args: &Args,
    context: &Context,
    server: &Server,
    has_tokens: bool,
) -> anyhow::Result<String> {
    let is_open = context.config.serve.is_open();
    let address = format!("http://{}", server.address());
    // The link gives all rights, so it is written neither to a file nor to the journal.
    let link = (context.console.prints_to_terminal() && !is_open).then(|| server.one_time_link());
    if context.is_json() {
        let object = json!({ "url": address, "link": link });
        context.console.print(&format!("{object}\n"))?;
    } else {
        let shown = link.as_ref().unwrap_or(&address);
        context.console.print(&format!("{shown}\n"))?;
    }
    let next = match (&link, has_tokens) {
        (Some(_), _) => "open this link to log in (valid once, for 10 minutes)",
        (None, true) => "log in with a token",
        (None, false) => {
            "no log-in is possible yet: `smsq serve token NAME --role ROLE` makes a token; at a terminal a link is printed"
        }
    };
    let stops = if args.send {
        "Ctrl-C stops the server and its worker"
    } else {
        "Ctrl-C stops the server, workers keep running"
    };
    context.console.status(&format!("{next}; {stops}"));
    Ok(address)
}

/// Sends until a signal stops the worker, and says what it did.
async fn send(
    worker: PreparedRun<'_>,
    signals: &mut Signals,
    console: &Console,
) -> anyhow::Result<Exit> {
    let run = worker.start(signals).await?;
    console.status(run.text().trim_end());
    run.explain(console);
    Ok(if run.is_stopped() { Exit::Done } else { run.exit() })
}
