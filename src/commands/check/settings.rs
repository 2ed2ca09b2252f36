//! Settings that are valid one by one, and that cannot work together.

use std::sync::Arc;
use std::time::Duration;

use smsq_message::phone::Numbers;
use smsq_message::sms::Timestamp;
use smsq_message::text::{duration, listed};
use smsq_provider::Provider;

use crate::commands::findings::{open_without_token, unencrypted};
use crate::commands::with_hint;
use crate::config::Config;

/// What is wrong with several settings.
#[derive(Debug)]
pub(super) enum Conflict {
    /// Something that the settings switch on cannot work.
    Problem(&'static str, anyhow::Error),
    /// It works, but not as it looks.
    Note(&'static str, String),
}

/// The conflicts of the settings; `providers` are those that are used.
pub(super) fn conflicts(
    config: &Config,
    providers: &[Arc<Provider>],
    now: Timestamp,
) -> Vec<Conflict> {
    let mut found = Vec::new();
    found.extend(
        open_without_token(&config.serve).map(|problem| Conflict::Problem("serve", problem)),
    );
    let plain = unencrypted(&config.serve);
    found.extend(plain.map(|note| Conflict::Note("serve", note.to_owned())));
    for provider in providers {
        found.extend(webhook_conflict(config, provider));
    }
    let notes = [
        ("receipts", receipts_note(config, providers)),
        ("retention", retention_note(config, providers, now)),
        ("retry", retry_note(config)),
        ("import", numbers_note(config)),
        ("database", password_note(config)),
    ];
    found.extend(config.shared_accounts.iter().map(|shared| {
        let sections = listed(shared.sections.iter().map(String::as_str));
        let (account, rates) = (&shared.account, &shared.rates);
        let note = format!(
            "{sections} have account `{account}` and different limits: the smallest apply to all of them, {rates}"
        );
        Conflict::Note("limit", note)
    }));
    found.extend(
        notes.into_iter().filter_map(|(subject, note)| Some(Conflict::Note(subject, note?))),
    );
    found
}

/// A provider whose messages await posted receipts that cannot come.
fn webhook_conflict(config: &Config, provider: &Provider) -> Option<Conflict> {
    let webhook = provider.capabilities().webhook.as_ref();
    let webhook = webhook.filter(|webhook| webhook.is_enabled)?;
    let (name, serve) = (provider.name(), &config.serve);
    let awaits = format!("`{name}` awaits posted receipts (`webhook.enabled`)");
    if serve.receipt_key().is_none() {
        return Some(Conflict::Problem(
            "receipts",
            with_hint(
                format!("{awaits}, and `smsq serve` takes none: `serve.receipt_key` is not set"),
                "`smsq serve urls` suggests a key; then tell the vendor the URL that it prints",
            ),
        ));
    }
    if serve.public_url.is_some() {
        return None;
    }
    let section = config.providers.get(name);
    let setting = webhook.url_setting.as_deref();
    let unset = setting.filter(|key| section.is_none_or(|section| !section.contains_key(*key)));
    if let Some(setting) = unset {
        return Some(Conflict::Problem(
            "receipts",
            with_hint(
                format!(
                    "{awaits}, and its requests have no address for them: `serve.public_url` is not set"
                ),
                format!(
                    "set it to where the vendor reaches `smsq serve`, or set `{setting}` in [providers.{name}]"
                ),
            ),
        ));
    }
    let listen = serve.listen;
    let is_unreachable = listen.ip().is_loopback() && !provider.is_on_this_host();
    is_unreachable.then(|| {
        let note =
            format!("{awaits}, and only this machine reaches `{listen}`: set `serve.public_url`");
        Conflict::Note("receipts", note)
    })
}

fn receipts_note(config: &Config, providers: &[Arc<Provider>]) -> Option<String> {
    let receipts = &config.receipts;
    let (wait, longest) = (receipts.wait, receipts.no_report_after);
    if wait.is_zero() || providers.is_empty() {
        return None;
    }
    if !providers.iter().any(|provider| provider.awaits_receipts()) {
        return Some(format!(
            "`receipts.wait` is {}, and no provider's receipts are switched on: `smsq providers show NAME` says how",
            duration(wait)
        ));
    }
    (wait > longest).then(|| {
        let (wait, longest) = (duration(wait), duration(longest));
        format!("`receipts.wait` is {wait}, but after {longest} (`receipts.no_report_after`) no receipt is awaited")
    })
}

fn retention_note(config: &Config, providers: &[Arc<Provider>], now: Timestamp) -> Option<String> {
    let age = config.retention.age()?;
    let awaited = config.receipts.no_report_after;
    let is_awaited = providers.iter().any(|provider| provider.awaits_receipts());
    (is_awaited && now.since(age.before(now)) < awaited).then(|| {
        format!(
            "messages are deleted after {} (`retention.older_than`), and receipts may come for {} \
             (`receipts.no_report_after`)",
            config.retention.older_than,
            duration(awaited)
        )
    })
}

/// A campaign that stops while its messages or its provider still wait for the next attempt.
fn retry_note(config: &Config) -> Option<String> {
    let retry = &config.retry;
    let waits: [(&str, Duration); 3] = [
        ("retry.max_wait", retry.max_wait),
        ("retry.max_retry_after", retry.max_retry_after),
        ("circuit_breaker.max_probe", config.circuit_breaker.max_probe),
    ];
    let longer = waits.into_iter().filter(|(_, wait)| *wait > retry.give_up_after);
    let (key, wait) = longer.max_by_key(|(_, wait)| *wait)?;
    let (give_up, wait) = (duration(retry.give_up_after), duration(wait));
    Some(format!(
        "a campaign stops after {give_up} without a success (`retry.give_up_after`), and its messages may wait {wait} \
         for the next attempt (`{key}`)"
    ))
}

fn numbers_note(config: &Config) -> Option<String> {
    let is_missing = config.import.numbers == Numbers::National && config.default_region.is_none();
    is_missing.then(|| {
        "`import.numbers` is `national`, and `default_region` is not set: every list needs `--region`".to_owned()
    })
}

fn password_note(config: &Config) -> Option<String> {
    let database = &config.database;
    let has_both =
        !database.password.expose().is_empty() && !database.password_file.expose().is_empty();
    has_both.then(|| {
        "`database.password_file` is not read, because `database.password` is set".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags};

    const VENDOR: &str = "default_provider = 'v'\n[providers.v]\nkind = 'generic'\nurl = 'https://sms.example.net/'\n\
        json = { to = '{{ phone }}', text = '{{ content }}' }\n";
    const WEBHOOK: &str = "[providers.v.webhook]\nmessage_id = '/id'\nstate = '/state'\n\
        states = { ok = 'delivered' }\n";
    const KEY: &str = "serve.receipt_key = '0123456789abcdef0123456789abcdef'\n";

    /// The conflicts of a configuration file, each after the word `problem` or `note`.
    fn found(file: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("smsq.toml");
        std::fs::write(&path, file).expect("writes a file");
        let flags = Flags { config: Some(path), ..Flags::default() };
        let config = Config::load(&flags, &Environment::new()).expect(file);
        let provider = |name: &String| {
            let section = &config.providers[name];
            Arc::new(Provider::from_section(name, section, &|_| None).expect("a provider"))
        };
        let providers: Vec<Arc<Provider>> = config.own_providers.iter().map(provider).collect();
        let now = Timestamp::from_millis(1_800_000_000_000);
        conflicts(&config, &providers, now)
            .into_iter()
            .map(|conflict| match conflict {
                Conflict::Problem(subject, error) => format!("problem {subject}: {error:#}"),
                Conflict::Note(subject, note) => format!("note {subject}: {note}"),
            })
            .collect()
    }

    #[test]
    fn defaults_and_an_ordinary_provider_have_no_conflict() {
        for file in ["", VENDOR] {
            assert_eq!(found(file), [""; 0], "{file}");
        }
    }

    #[test]
    fn settings_that_cannot_work_together_are_found() {
        let enabled = format!("{WEBHOOK}enabled = true\n");
        let with_setting = format!("{enabled}url_setting = 'callback'\n");
        let public = "serve.public_url = 'https://sms.example.net'\n\
            serve.tokens = ['shop:send:0000000000000000000000000000000000000000000000000000000000000000']\n";
        let pulled = "[providers.v.receipts]\npull = 'drain'\nrate = '1/s'\nlist = '/list'\nmessage_id = '/id'\n\
            state = '/state'\nstates = { ok = 'delivered' }\n";
        for (before, after, expected) in [
            ("", enabled.as_str(), "problem receipts: `v` awaits posted receipts"),
            (KEY, &with_setting, "problem receipts: `v` awaits posted receipts"),
            (KEY, &enabled, "note receipts: `v` awaits posted receipts"),
            ("receipts.wait = '10min'\n", "", "note receipts: `receipts.wait` is 10m"),
            (
                "receipts = { wait = '2h', no_report_after = '1h' }\n",
                pulled,
                "note receipts: `receipts.wait` is 2h, but after 1h",
            ),
            (
                "retention.older_than = '1d'\n",
                pulled,
                "note retention: messages are deleted after 1d",
            ),
            (
                "retry.give_up_after = '30min'\n",
                "",
                "note retry: a campaign stops after 30m without a success",
            ),
            ("import.numbers = 'national'\n", "", "note import: `import.numbers` is `national`"),
            (
                "database = { password = 'a', password_file = 'b' }\n",
                "",
                "note database: `database.password_file` is not read",
            ),
            (
                "serve.listen = '0.0.0.0:8026'\n",
                "",
                "problem serve: others can reach `0.0.0.0:8026`",
            ),
            (
                "serve.public_url = 'http://sms.example.net'\n",
                "",
                "problem serve: others can reach `127.0.0.1:8026`",
            ),
        ] {
            let file = format!("{before}{VENDOR}{after}");
            let found = found(&file);
            let count = found.iter().filter(|conflict| conflict.starts_with(expected)).count();
            assert_eq!(count, 1, "{file}{found:#?}");
        }
        // The same settings with what they need.
        for (before, after) in [
            (format!("{KEY}{public}").as_str(), with_setting.as_str()),
            ("receipts.wait = '10min'\n", pulled),
            ("retention.older_than = '3d'\n", pulled),
            ("import.numbers = 'national'\ndefault_region = 'GB'\n", ""),
        ] {
            let file = format!("{before}{VENDOR}{after}");
            assert_eq!(found(&file), [""; 0], "{file}");
        }
    }
}
