//! The layers of the configuration, its faults, and that its defaults are whole.

use super::*;

fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, Fault> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join(FILE);
    std::fs::write(&path, file).expect("writes the file");
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Config::load(&flags, &environment)
}

/// The message, with the scratch folder cut off.
fn fault(file: &str, environment: &[(&str, &str)]) -> String {
    let fault = load(file, environment).expect_err("a fault");
    let message = match fault.hint() {
        Some(hint) => format!("{fault}\nhint: {hint}"),
        None => fault.to_string(),
    };
    match message.find(FILE) {
        Some(at) => message[at..].to_owned(),
        None => message,
    }
}

#[test]
fn the_defaults_are_complete_and_pass_their_own_checks() {
    let config = load("", &[]).expect("the defaults");
    assert_eq!(config.default_provider, None);
    assert_eq!(config.database.url, "sqlite://smsq.db");
    assert_eq!(config.sender.concurrency, 64);
    assert_eq!(config.sender.lease, Duration::from_secs(30));
    assert_eq!(config.retry.max_wait, Duration::from_secs(600));
    assert_eq!(config.retry.give_up_after, Duration::from_secs(86_400));
}

#[test]
fn every_default_stands_under_a_comment() {
    let mut above = "";
    for line in DEFAULT.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(above.starts_with('#'), "`{line}` has no comment");
        }
        above = line;
    }
}

#[test]
fn every_default_has_words_for_what_it_must_be() {
    let defaults: toml::Table = DEFAULT.parse().expect("valid TOML");
    for (section, value) in &defaults {
        for key in value.as_table().into_iter().flat_map(toml::Table::keys) {
            assert_ne!(wanted(&format!("{section}.{key}")), wanted("?"), "{key}");
        }
    }
}

#[test]
fn the_environment_lies_over_the_file_and_the_file_over_the_defaults() {
    let file = "[sender]\nconcurrency = 8\nlease = \"20s\"\n";
    let environment = [
        ("SMSQ__SENDER__CONCURRENCY", "16"),
        ("SMSQ__DATABASE__URL", ""),
    ];
    let config = load(file, &environment).expect("valid");
    assert_eq!(config.sender.concurrency, 16);
    assert_eq!(config.sender.lease, Duration::from_secs(20));
    assert_eq!(config.database.url, "sqlite://smsq.db");
}

#[test]
fn stanzas_keep_the_case_of_their_keys() {
    let file = r#"
        [providers.Cellar]
        kind = "generic"
        headers = { "X-Api-Key" = "a" }
        json = { To = "{{ phone }}" }
        [providers.Cellar.codes]
        "E.Limit" = { class = "throttle" }
    "#;
    let environment = [
        ("SMSQ__PROVIDERS__CELLAR__HEADERS__X-API-KEY", "b"),
        ("SMSQ__PROVIDERS__CELLAR__RATE", "5/s"),
        ("SMSQ__PROVIDERS__CELLAR__ACCEPTED", "[200, 202]"),
    ];
    let config = load(file, &environment).expect("valid");
    let stanza = &config.providers["Cellar"];
    assert_eq!(stanza["headers"]["X-Api-Key"].as_str(), Some("b"));
    assert!(stanza["json"].get("To").is_some());
    assert!(stanza["codes"].get("E.Limit").is_some());
    assert_eq!(stanza["rate"].as_str(), Some("5/s"));
    assert_eq!(stanza["accepted"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_only_provider_of_the_file_is_the_default() {
    let one = "[providers.a]\nkind = \"generic\"\n";
    let two = "[providers.a]\nkind = \"generic\"\n[providers.b]\nkind = \"generic\"\n";
    let config = load(one, &[]).expect("valid");
    assert_eq!(config.default_provider.as_deref(), Some("a"));
    assert_eq!(load(two, &[]).expect("valid").default_provider, None);
}

#[test]
fn prices_of_an_unknown_provider_are_rejected() {
    let prices = "[prices.sandbx]\ncurrency = \"EUR\"\n44 = 0.1\n";
    assert_eq!(
        fault(prices, &[]),
        "smsq.toml:1: `prices.sandbx` must be a section named after a provider; unknown provider `sandbx`; \
         did you mean `sandbox`?"
    );
    assert!(load(&prices.replace("sandbx", "sandbox"), &[]).is_ok());
}

#[test]
fn section_without_kind_lies_over_the_built_in_one() {
    let file = "[providers.twilio]\nsecrets = { auth_token = { file = \"/t\" } }\ncodes = { 21610 = { class = \"content\" } }\n";
    let twilio = &load(file, &[]).expect("valid").providers["twilio"];
    assert_eq!(
        twilio["secrets"]["auth_token"]
            .as_table()
            .map(toml::Table::len),
        Some(1)
    );
    assert!(twilio["secrets"].get("account_sid").is_some());
    assert!(twilio["codes"]["21610"].get("reason").is_none());
    assert!(twilio["codes"].get("21211").is_some());
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_closest_one() {
    assert_eq!(
        fault("\n[sender]\nconcurency = 8\n", &[]),
        "smsq.toml:3: `sender.concurency` is not a setting\nhint: did you mean `sender.concurrency`?"
    );
    assert_eq!(
        fault("concurrency = 8\n", &[]),
        "smsq.toml:1: `concurrency` is not a setting\nhint: did you mean `sender.concurrency`?"
    );
    assert_eq!(
        fault("", &[("SMSQ__RETRY__FIRST_WAITS", "5s")]),
        "environment variable SMSQ__RETRY__FIRST_WAITS: `retry.first_waits` is not a setting\n\
         hint: did you mean `retry.first_wait`?"
    );
}

#[test]
fn a_bad_value_is_named_with_what_it_must_be() {
    for (file, message) in [
        (
            "[sender]\nconcurrency = 0",
            "smsq.toml:2: `sender.concurrency` is `0`, but it must be a whole number from 1 to 4096",
        ),
        (
            "[sender]\nconcurrency = \"many\"",
            "smsq.toml:2: `sender.concurrency` is `many`, but it must be a whole number from 1 to 4096",
        ),
        (
            "[sender]\nconcurrency = -1",
            "smsq.toml:2: `sender.concurrency` is `-1`, but it must be a whole number from 1 to 4096",
        ),
        (
            "[sender]\nlease = \"2s\"",
            "smsq.toml:2: `sender.lease` is `2s`, but it must be a duration of 5 s or more, like `30s`",
        ),
        (
            "[sender]\non_unknown = \"drop\"",
            "smsq.toml:2: `sender.on_unknown` is `drop`, but it must be `hold` or `resend`",
        ),
        (
            "[retry]\nfirst_wait = \"soon\"",
            "smsq.toml:2: `retry.first_wait` is `soon`, but it must be a duration like `5s`, not longer than `retry.max_wait`",
        ),
        (
            "[retry]\nfirst_wait = \"11min\"",
            "smsq.toml:2: `retry.first_wait` is `11min`, but it must be a duration like `5s`, not longer than `retry.max_wait`",
        ),
        (
            "sender = 5",
            "smsq.toml:1: `sender` is `5`, but it must be a section of settings",
        ),
        (
            "providers = 5",
            "smsq.toml:1: `providers` must be sections like `[providers.NAME]`",
        ),
        (
            "[providers]\na = 5",
            "smsq.toml:2: `providers.a` must be a section `[providers.NAME]`",
        ),
    ] {
        assert_eq!(fault(file, &[]), message);
    }
    assert_eq!(
        fault("", &[("SMSQ__SENDER__CONCURRENCY", "lots")]),
        "environment variable SMSQ__SENDER__CONCURRENCY: `sender.concurrency` is `lots`, but it must be a whole number from 1 to 4096"
    );
}

#[test]
fn a_file_that_is_not_toml_is_named_with_its_line() {
    let message = fault("a = 1\n[sender\n", &[]);
    assert!(
        message.starts_with("smsq.toml:2: not valid TOML: "),
        "{message}"
    );
}
