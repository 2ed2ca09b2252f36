//! Layers, errors and defaults of the configuration.

use super::*;

fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join(FILE);
    std::fs::write(&path, file).expect("writes the file");
    let flags = Flags { config: Some(path), ..Flags::default() };
    let environment =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::load(&flags, &environment)
}

/// The message, with the scratch folder cut off.
fn error(file: &str, environment: &[(&str, &str)]) -> String {
    let error = load(file, environment).expect_err("an error");
    let message = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    match message.find(FILE) {
        Some(at) => message[at..].to_owned(),
        None => message,
    }
}

#[test]
fn defaults_are_complete_and_valid() {
    let config = load("", &[]).expect("the defaults");
    assert_eq!(config.default_provider, None);
    assert_eq!(config.database.url.expose(), "sqlite://smsq.db");
    assert_eq!(config.sender.concurrency, 64);
    assert_eq!(config.sender.lease, Duration::from_secs(30));
    assert_eq!(config.retry.max_wait, Duration::from_secs(600));
    assert_eq!(config.retry.give_up_after, Duration::from_secs(86_400));
}

#[test]
fn every_default_has_a_comment() {
    let mut above = "";
    for line in DEFAULT.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(above.starts_with('#'), "`{line}` has no comment");
        }
        above = line;
    }
}

#[test]
fn every_setting_describes_its_values() {
    let defaults: toml::Table = DEFAULT.parse().expect("valid TOML");
    for (section, value) in &defaults {
        for key in value.as_table().into_iter().flat_map(toml::Table::keys) {
            assert_ne!(expected(&format!("{section}.{key}")), expected("?"), "{key}");
        }
    }
}

#[test]
fn environment_overrides_file_and_file_overrides_defaults() {
    let file = "[sender]\nconcurrency = 8\nlease = \"20s\"\n";
    let environment = [("SMSQ__SENDER__CONCURRENCY", "16"), ("SMSQ__DATABASE__URL", "")];
    let config = load(file, &environment).expect("valid");
    assert_eq!(config.sender.concurrency, 16);
    assert_eq!(config.sender.lease, Duration::from_secs(20));
    assert_eq!(config.database.url.expose(), "sqlite://smsq.db");
}

#[test]
fn provider_sections_keep_the_case_of_keys() {
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
    let section = &config.providers["Cellar"];
    assert_eq!(section["headers"]["X-Api-Key"].as_str(), Some("b"));
    assert!(section["json"].get("To").is_some());
    assert!(section["codes"].get("E.Limit").is_some());
    assert_eq!(section["rate"].as_str(), Some("5/s"));
    assert_eq!(section["accepted"].as_array().map(Vec::len), Some(2));
}

#[test]
fn variable_sets_a_required_key_of_a_builtin_provider() {
    let environment = [
        ("SMSQ__PROVIDERS__INFOBIP__URL", "https://x1.example.net"),
        ("SMSQ__PROVIDERS__TENCENT__TEMPLATE", "1110"),
    ];
    let config = load("", &environment).expect("valid");
    let required = |name: &str| config.providers[name]["required"].to_string();
    assert_eq!(required("infobip"), "[]");
    assert_eq!(required("tencent"), "[\"sdk_app_id\"]");
}

#[test]
fn only_provider_in_the_file_is_the_default() {
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
        error(prices, &[]),
        "smsq.toml:1: invalid `prices.sandbx`: expected the name of a provider; did you mean `sandbox`?"
    );
    assert!(load(&prices.replace("sandbx", "sandbox"), &[]).is_ok());
}

#[test]
fn section_without_kind_changes_the_built_in_one() {
    let file = "[providers.twilio]\nsecrets = { auth_token = { file = \"/t\" } }\ncodes = { 21610 = { class = \"content\" } }\n";
    let twilio = &load(file, &[]).expect("valid").providers["twilio"];
    assert_eq!(twilio["secrets"]["auth_token"].as_table().map(toml::Table::len), Some(1));
    assert!(twilio["secrets"].get("account_sid").is_some());
    assert!(twilio["codes"]["21610"].get("reason").is_none());
    assert!(twilio["codes"].get("21211").is_some());
}

#[test]
fn unknown_key_is_named_with_line_and_suggestion() {
    assert_eq!(
        error("\n[sender]\nconcurency = 8\n", &[]),
        "smsq.toml:3: unknown setting `sender.concurency`\nhint: did you mean `sender.concurrency`?"
    );
    assert_eq!(
        error("concurrency = 8\n", &[]),
        "smsq.toml:1: unknown setting `concurrency`\nhint: did you mean `sender.concurrency`?"
    );
    assert_eq!(
        error("", &[("SMSQ__RETRY__FIRST_WAITS", "5s")]),
        "environment variable SMSQ__RETRY__FIRST_WAITS: unknown setting `retry.first_waits`\n\
         hint: did you mean `retry.first_wait`?"
    );
}

#[test]
fn invalid_value_is_named_with_line_and_expectation() {
    for (file, message) in [
        (
            "[sender]\nconcurrency = 0",
            "smsq.toml:2: invalid value `0` of `sender.concurrency`: expected a whole number from 1 to 4096",
        ),
        (
            "[sender]\nconcurrency = \"many\"",
            "smsq.toml:2: invalid value `many` of `sender.concurrency`: expected a whole number from 1 to 4096",
        ),
        (
            "[sender]\nconcurrency = -1",
            "smsq.toml:2: invalid value `-1` of `sender.concurrency`: expected a whole number from 1 to 4096",
        ),
        (
            "[sender]\nlease = \"2s\"",
            "smsq.toml:2: invalid value `2s` of `sender.lease`: expected a duration of 5 s or more, like `30s`",
        ),
        (
            "[sender]\non_unknown = \"drop\"",
            "smsq.toml:2: invalid value `drop` of `sender.on_unknown`: expected `hold` or `resend`",
        ),
        (
            "[retry]\nfirst_wait = \"soon\"",
            "smsq.toml:2: invalid value `soon` of `retry.first_wait`: expected a duration like `5s`, not longer than `retry.max_wait`",
        ),
        (
            "[retry]\nfirst_wait = \"11min\"",
            "smsq.toml:2: invalid value `11min` of `retry.first_wait`: expected a duration like `5s`, not longer than `retry.max_wait`",
        ),
        (
            "sender = 5",
            "smsq.toml:1: invalid value `5` of `sender`: expected a section of settings",
        ),
        ("providers = 5", "smsq.toml:1: invalid `providers`: expected sections `[providers.NAME]`"),
        (
            "[providers]\na = 5",
            "smsq.toml:2: invalid `providers.a`: expected a section `[providers.NAME]`",
        ),
    ] {
        assert_eq!(error(file, &[]), message);
    }
    assert_eq!(
        error("", &[("SMSQ__SENDER__CONCURRENCY", "lots")]),
        "environment variable SMSQ__SENDER__CONCURRENCY: invalid value `lots` of `sender.concurrency`: expected a whole number from 1 to 4096"
    );
}

#[test]
fn invalid_toml_is_named_with_its_line() {
    let message = error("a = 1\n[sender\n", &[]);
    assert!(message.starts_with("smsq.toml:2: invalid TOML: "), "{message}");
}
