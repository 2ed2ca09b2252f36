//! The configuration and its providers: errors with their place, and the commands that show them.

use smsq_sandbox::SandboxConfig;

use crate::support::practice::Practice;
use crate::support::scripted::Scripted;
use crate::support::shell::sqlite;
use crate::support::{Scratch, snapshot};

#[test]
fn configuration_errors_exit_2_with_key_and_place() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "[sender]\nconcurency = 8\n");
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: smsq.toml:2: unknown setting `sender.concurency`
    hint: did you mean `sender.concurrency`?
    ");
    scratch.write("smsq.toml", "[sender]\nconcurrency = 0\n");
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: smsq.toml:2: invalid value `0` of `sender.concurrency`: expected a whole number from 1 to 4096
    ");
    scratch.write("smsq.toml", "[sender\n");
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: smsq.toml:1: invalid TOML: unclosed table, expected `]`
    ");
    snapshot!(scratch.run(["status", "--config", "other.toml"]), @r"
    exit 2
    ----- stderr
    error: cannot read the configuration `other.toml`: No such file or directory (os error 2)
    hint: `smsq init` writes an example
    ");
    snapshot!(scratch.run_with(["status"], &[("SMSQ_CONFIG", "env.toml")]), @r"
    exit 2
    ----- stderr
    error: cannot read the configuration `env.toml`: No such file or directory (os error 2)
    hint: `smsq init` writes an example
    ");
    scratch.write("smsq.toml", "");
    snapshot!(scratch.run_with(["status"], &[("SMSQ__SENDER__LEASE", "1s")]), @r"
    exit 2
    ----- stderr
    error: environment variable SMSQ__SENDER__LEASE: invalid value `1s` of `sender.lease`: expected a duration of 5 s or more, like `30s`
    ");
    scratch.write("smsq.toml", "default_region = \"Moon\"\n");
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: smsq.toml:1: invalid value `Moon` of `default_region`: expected a country in two letters, like `GB`
    ");
}

#[test]
fn send_with_two_providers_asks_for_a_default() {
    let scratch = Scratch::new();
    scratch
        .write("smsq.toml", "[providers.a]\nkind = 'sandbox'\n[providers.b]\nkind = 'sandbox'\n")
        .import("phone\n+447400123456\n");
    snapshot!(scratch.run(["send"]), @r"
    exit 2
    ----- stderr
    error: missing provider: several are configured (a, b)
    hint: set `default_provider` in smsq.toml
    ");
}

/// Values of every type with the marker in them.
const WRONG: [&str; 6] = [
    "48151623",
    "48151623.5",
    "[48151623]",
    "['x:read:48151623']",
    "{ a = '48151623' }",
    "'nothing://me:48151623@host/48?48151623'",
];

/// A setting whose name says that it may be, or contain, a password.
fn sounds_secret(key: &str) -> bool {
    ["database", "redis", "pass", "token", "key", "secret"].iter().any(|word| key.contains(word))
}

#[test]
fn errors_of_secret_settings_never_show_their_values() {
    let scratch = Scratch::new();
    let defaults: toml::Table = smsq::config::DEFAULT.parse().expect("valid TOML");
    let mut keys = Vec::new();
    for (section, value) in &defaults {
        keys.push(section.clone());
        let inner = value.as_table().into_iter().flatten();
        keys.extend(inner.map(|(key, _)| format!("{section}.{key}")));
    }
    let is_sections = |key: &str| defaults[key.split('.').next().unwrap_or(key)].is_table();
    let holds_secret = |key: &String| {
        let is_below = |other: &&String| other.starts_with(&format!("{key}."));
        sounds_secret(key) || keys.iter().filter(is_below).any(|key| sounds_secret(key))
    };
    let (secret, public): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| holds_secret(key));
    assert!(secret.len() >= 9, "{secret:?}");
    for key in secret {
        for wrong in WRONG {
            let file = format!("{key} = {wrong}\n");
            let variable = format!("SMSQ__{}", key.to_uppercase().replace('.', "__"));
            for (file, variables) in [(file.as_str(), &[][..]), ("", &[(variable.as_str(), wrong)])]
            {
                scratch.write("smsq.toml", file);
                let ran = scratch.run_with(["check"], variables);
                let accepts_texts = key.ends_with("password") || key.ends_with("receipt_key");
                assert!(ran.code() == Some(2) || accepts_texts, "{file}{variables:?}{ran}");
                for part in ["48151623", "151623", "me:48"] {
                    assert!(!ran.to_string().contains(part), "{file}{variables:?}{ran}");
                }
            }
        }
    }
    // Values of other settings are named, by file, environment and flag.
    for key in public.iter().filter(|key| is_sections(key) && key.contains('.')) {
        scratch.write("smsq.toml", &format!("{key} = {{ a = 1 }}\n"));
        let ran = scratch.run(["check"]).to_string();
        assert!(ran.contains(&format!("`{key}`")), "{ran}");
    }
    scratch.write("smsq.toml", "serve.listen = 'here'\n");
    let ran = scratch.run(["check"]).to_string();
    assert!(ran.contains("invalid value `here` of `serve.listen`"), "{ran}");
    scratch.write("smsq.toml", "");
    for flag in ["mysql://me:48151623@", "postgres:48151623", "me:48151623", "sqlite://"] {
        let ran = scratch.run(["check", "--database", flag]);
        assert!(!ran.to_string().contains("48151623"), "{ran}");
    }
}

#[test]
fn providers_show_nothing_that_may_be_a_secret() {
    let scratch = Scratch::new();
    let request = "headers = { X-A = 'hunter2', Authorization = 'Basic hunter2 {{ secret.token }}' }\n\
         query = { a = 'hunter2', b = '{{ (\"hunter2\" ~ secret.token) | base64 }}' }\n";
    let body = "json = { to = '{{ phone }}', deep = [{ pin = 48151623 }, 'hunter2'], plain = 'hunter2 {{ phone }}' }\n";
    let section = format!(
        "[providers.shop]\nkind = 'generic'\nurl = 'http://127.0.0.1:9/send?key=hunter2'\n{request}{body}\
         secrets = {{ token = {{ env = 'SHOP_TOKEN' }} }}\n\
         [providers.shop.lookup]\nafter = '1s'\nrate = '1/s'\nurl = 'http://127.0.0.1:9/{{{{ reference }}}}?k=hunter2'\n\
         query = {{ a = 'hunter2' }}\n\
         matches = {{ '/reference' = '{{{{ reference }}}}' }}\nmessage_id = '/id'\n\
         [providers.shop.receipts]\npull = 'drain'\nrate = '1/s'\nlist = '/list'\nmessage_id = '/id'\n\
         state = '/state'\nstates = {{ ok = 'delivered' }}\n{request}form = {{ a = 'hunter2', b = '5678901' }}\n\
         method = 'POST'\n\
         [providers.shop.receipts.confirm]\nurl = 'http://127.0.0.1:9/c?key=hunter2'\n{request}\
         json = {{ a = 'hunter2', until = '{{{{ until }}}}' }}\n\
         [providers.shop.receipts.recheck]\npull = 'sweep'\n{request}form = {{ a = 'hunter2' }}\n"
    );
    scratch.write("smsq.toml", &section);
    for command in [
        &["providers", "show", "shop"][..],
        &["providers", "show", "shop", "--format", "json"],
        &["providers", "list"],
        &["check"],
        &["providers", "test", "shop", "--to", "+447400123456", "--wait", "0s"],
    ] {
        let ran = scratch.run_with(command.iter().copied(), &[("SHOP_TOKEN", "hunter3")]);
        let shown = ran.to_string();
        for secret in ["hunter", "48151623", "5678901", "aHVudGVy"] {
            assert!(!shown.contains(secret), "{command:?}{shown}");
        }
    }
    let shown = scratch.run(["providers", "show", "shop"]).stdout();
    for kept in ["{{ phone }}", "{{ secret.token }}", "{{ until }}", "/send?[hidden]"] {
        assert!(shown.contains(kept), "`{kept}` is not in\n{shown}");
    }
    // What smsq itself publishes is shown.
    let shown = scratch.run(["providers", "show", "plivo"]).stdout();
    assert!(!shown.contains("[hidden]"), "{shown}");
}

#[test]
fn errors_of_provider_sections_never_show_request_values() {
    let valid =
        "kind = 'generic'\nurl = 'http://127.0.0.1:9/send'\njson = { to = '{{ phone }}' }\n";
    let receipts = "pull = 'drain'\nrate = '1/s'\nlist = '/list'\nmessage_id = '/id'\nstate = '/state'\n\
         states = { ok = 'delivered' }\n";
    let mut cases = Vec::new();
    for key in [
        "headers",
        "headers.x",
        "query",
        "query.x",
        "json",
        "form",
        "form.x",
        "secrets",
        "secrets.x",
    ] {
        for wrong in WRONG {
            cases.push(format!("[providers.shop]\n{valid}{key} = {wrong}\n"));
            for section in ["lookup", "receipts", "receipts.confirm", "receipts.recheck", "webhook"]
            {
                let above = if section == "receipts.confirm" || section == "receipts.recheck" {
                    format!("[providers.shop.receipts]\n{receipts}")
                } else {
                    String::new()
                };
                let keys = if section == "receipts" { receipts } else { "" };
                cases.push(format!(
                    "[providers.shop]\n{valid}{above}[providers.shop.{section}]\n{keys}{key} = {wrong}\n"
                ));
            }
        }
    }
    for wrong in WRONG {
        cases.push(format!("[providers.shop]\n{valid}webhook.secret = {wrong}\n"));
    }
    for case in cases {
        let Ok(file) = case.parse::<toml::Table>() else {
            continue;
        };
        let section = file["providers"]["shop"].as_table().expect("a section");
        let read = smsq_provider::Provider::from_section("shop", section, &|_| None);
        let Err(error) = read else { continue };
        assert!(!error.to_string().contains("151623"), "{case}{error}");
    }
}

#[test]
fn provider_errors_exit_2_and_name_it() {
    let scratch = Scratch::new();
    scratch
        .write("smsq.toml", "[providers.a]\nkind = \"generic\"\nurll = \"http://127.0.0.1:1\"\n");
    snapshot!(scratch.run(["check"]), @r"
    exit 2
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    problem  provider       provider `a`: unknown key `urll`
                            hint: did you mean `url`?
    ");
    scratch.write(
        "smsq.toml",
        "[providers.a]\nkind = \"generic\"\nurl = \"http://127.0.0.1:1\"\n\
         json = { to = \"{{ phone }}\", key = \"{{ secret.key }}\" }\nsecrets = { key = { env = \"A_KEY\" } }\n",
    );
    snapshot!(scratch.run(["providers", "test", "a", "--to", "+447400123456"]), @r"
    exit 2
    ----- stderr
    error: provider `a`: secret `key` is not set: the environment variable `A_KEY` is missing or empty
    hint: `export A_KEY=…` sets it for this shell
    ");
    snapshot!(scratch.run(["providers", "show", "b"]), @r"
    exit 2
    ----- stderr
    error: unknown provider `b`
    hint: describe it as `[providers.NAME]` in smsq.toml; `smsq init` writes an example
    ");
    snapshot!(scratch.run_with(["check"], &[("A_KEY", "k"), ("SMSQ__PROVIDERS__A__TIMEOUT", "29s")]), @r"
    exit 2
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    problem  provider       `sender.lease` is 30s, too short for provider `a`: it must be at least 2 s longer than the provider's timeout of 29s
                            hint: otherwise a worker that waits for a response would be considered dead
    ");
}

#[test]
fn init_writes_an_example_and_never_overwrites() {
    let scratch = Scratch::new();
    snapshot!(scratch.run(["init"]), @r"
    exit 0
    ----- stderr
    wrote `smsq.toml`
    next: describe your provider in it, then `smsq check`
    ");
    let written = scratch.read("smsq.toml");
    assert!(written.contains("#[providers.cellar]"), "{written}");
    let reference = scratch.run(["init", "--reference"]).stdout();
    for part in ["[sender]\n", "[metrics]\n", "[providers.cellar.codes]\n"] {
        assert!(reference.contains(part), "{reference}");
    }
    snapshot!(scratch.run(["check"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    ok       provider       none yet: describe one as [providers.NAME] in smsq.toml
    ");
    snapshot!(scratch.run(["init"]), @r"
    exit 2
    ----- stderr
    error: `smsq.toml` already exists
    hint: name another file, such as `smsq init smsq.example.toml`
    ");
    assert_eq!(scratch.read("smsq.toml"), written);
    snapshot!(scratch.run(["init", "missing/smsq.toml"]), @r"
    exit 2
    ----- stderr
    error: cannot write `missing/smsq.toml`: No such file or directory (os error 2)
    ");
}

#[test]
fn provider_list_includes_built_in_ones() {
    let scratch = Scratch::new();
    snapshot!(scratch.run(["providers", "list"]), @r"
    exit 0
    ----- stdout
    provider         kind       sends     batch  reference  lookup  receipts       address
    46elks           generic    text      -      none       yes     sweep, posted  https://api.46elks.com                       built in
    africas-talking  generic    text      100    none       -       posted         https://api.africastalking.com               built in
    aliyun           aliyun     template  100    echoed     yes     ask, posted    https://dysmsapi.aliyuncs.com                built in
    aws-sms          aws-sms    text      -      echoed     -       posted         https://sms-voice.us-east-1.amazonaws.com    built in
    aws-sns          aws-sns    text      -      none       -       -              https://sns.us-east-1.amazonaws.com          built in
    azure            azure      text      -      echoed     -       posted         https://resource.communication.azure.com     built in
    bandwidth        generic    text      -      echoed     -       ask, posted    https://messaging.bandwidth.com              built in
    bulksms          generic    text      100    echoed     yes     ask, posted    https://api.bulksms.com                      built in
    chuanglan        generic    text      -      echoed     -       posted         https://smssh1.253.com                       built in
    clicksend        generic    text      100    echoed     yes     posted         https://rest.clicksend.com                   built in
    esendex          generic    text      -      none       -       -              https://api.esendex.com                      built in
    exotel           generic    text      -      echoed     -       ask, posted    https://api.exotel.com                       built in
    gupshup          generic    text      -      none       -       posted         https://enterprise.smsgupshup.com            built in
    huawei           huawei     template  100    echoed     -       posted         https://smsapi.cn-north-4.myhuaweicloud.com  built in
    infobip          generic    text      100    honoured   yes     drain, posted  https://account.api.infobip.com              built in
    jasmin           generic    text      -      echoed     -       posted         http://127.0.0.1:[PORT]                        built in
    kannel           generic    text      -      none       -       posted         http://127.0.0.1:[PORT]                       built in
    messagebird      generic    text      50     echoed     yes     sweep, posted  https://rest.messagebird.com                 built in
    msg91            generic    text      -      echoed     -       posted         https://api.msg91.com                        built in
    netgsm           generic    text      -      echoed     -       ask            https://api.netgsm.com.tr                    built in
    ovh              ovh        text      -      none       -       ask            https://eu.api.ovh.com                       built in
    plivo            generic    text      -      none       yes     sweep, posted  https://api.plivo.com                        built in
    sandbox          generic    text      -      honoured   -       posted         http://127.0.0.1:[PORT]                        built in
    signalwire       generic    text      -      none       yes     ask, posted    https://space.signalwire.com                 built in
    sinch            generic    text      -      echoed     yes     sweep, posted  https://eu.sms.api.sinch.com                 built in
    sms-gate         generic    text      -      echoed     yes     sweep, posted  https://api.sms-gate.app                     built in
    smsc-ru          generic    text      -      echoed     yes     ask, posted    https://smsc.ru                              built in
    smsglobal        smsglobal  text      -      none       yes     ask, posted    https://api.smsglobal.com                    built in
    submail          generic    text      -      echoed     -       sweep, posted  https://api-v4.mysubmail.com                 built in
    telnyx           generic    text      -      honoured   -       sweep, posted  https://api.telnyx.com                       built in
    tencent          tencent    template  200    echoed     yes     posted         https://sms.tencentcloudapi.com              built in
    textmagic        generic    text      -      none       yes     ask, posted    https://rest.textmagic.com                   built in
    twilio           twilio     text      -      none       yes     sweep, posted  https://api.twilio.com                       built in
    vonage           generic    text      -      echoed     -       posted         https://rest.nexmo.com                       built in
    vonage-messages  generic    text      -      echoed     -       posted         https://api.nexmo.com                        built in
    yunpian          yunpian    text      100    echoed     yes     posted         https://sms.yunpian.com                      built in
    zenvia           generic    text      -      none       -       posted         https://api.zenvia.com                       built in
    ");
    scratch.write_cellar("http://127.0.0.1:9");
    let listed = scratch.run(["providers", "list"]).stdout();
    let line = listed.lines().find(|line| line.starts_with("cellar "));
    assert!(line.is_some_and(|line| line.ends_with("default")), "{listed}");
    let listed = scratch.run(["providers", "list", "--format", "json"]).json();
    let of = |name: &str| {
        let all = listed["providers"].as_array().expect("a list");
        let one = all.iter().find(|one| one["name"] == name);
        one.expect("it is listed").clone()
    };
    let (cellar, telnyx) = (of("cellar"), of("telnyx"));
    assert_eq!((&cellar["default"], &cellar["builtin"]), (&true.into(), &false.into()));
    assert_eq!((&telnyx["default"], &telnyx["builtin"]), (&false.into(), &true.into()));
    assert_eq!(telnyx["capabilities"]["reference"]["honoured"]["for_seconds"], 86_400);
}

#[test]
fn flags_override_environment_and_file() {
    let scratch = Scratch::new();
    let concurrency = |count: &str| format!("[sender]\nconcurrency = \"{count}\"\n");
    std::fs::create_dir_all(scratch.path(".config/smsq")).expect("a folder");
    let named = |ran: &crate::support::Ran| {
        let text = ran.stderr();
        text.trim_start_matches("error: ").split(':').next().map(str::to_owned)
    };
    scratch.write(".config/smsq/smsq.toml", &concurrency("user"));
    let ran = scratch.run(["status"]);
    assert!(named(&ran).is_some_and(|name| name.ends_with(".config/smsq/smsq.toml")), "{ran}");
    scratch.write("smsq.toml", &concurrency("folder"));
    assert_eq!(named(&scratch.run(["status"])).as_deref(), Some("smsq.toml"));
    scratch.write("variable.toml", &concurrency("variable"));
    let variable = [("SMSQ_CONFIG", "variable.toml")];
    let ran = scratch.run_with(["status"], &variable);
    assert_eq!(named(&ran).as_deref(), Some("variable.toml"));
    scratch.write("flag.toml", &concurrency("flag"));
    let ran = scratch.run_with(["status", "--config", "flag.toml"], &variable);
    assert_eq!(named(&ran).as_deref(), Some("flag.toml"));
    scratch.write("smsq.toml", "[database]\nurl = \"sqlite://file.db\"\n");
    let variable = [("SMSQ__DATABASE__URL", "sqlite://variable.db")];
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: cannot open database `file.db`: it does not exist
    hint: `smsq import` creates it; check `--database` and the current folder
    ");
    snapshot!(scratch.run_with(["status"], &variable), @r"
    exit 2
    ----- stderr
    error: cannot open database `variable.db`: it does not exist
    hint: `smsq import` creates it; check `--database` and the current folder
    ");
    snapshot!(scratch.run_with(["status", "--database", "sqlite://flag.db"], &variable), @r"
    exit 2
    ----- stderr
    error: cannot open database `flag.db`: it does not exist
    hint: `smsq import` creates it; check `--database` and the current folder
    ");
}

/// A provider whose request has a sender that the section does not set.
const SENDERLESS: &str = r#"
[providers.g]
kind = "generic"
url = "http://127.0.0.1:1/send"
headers = { X-From = "{{ from }}" }
json = { to = "{{ phone }}" }
"#;

#[test]
fn request_through_a_proxy_names_the_gateway_and_the_password() {
    let proxy = Scripted::start("201 Created", r#"{"id": "m-1"}"#);
    let scratch = Scratch::new();
    scratch.write_cellar("http://gateway.example:8080");
    let address = proxy.url().replace("http://", "http://kim:secret@");
    scratch
        .run_with(
            ["providers", "test", "cellar", "--to", "+447400123456"],
            &[("http_proxy", &address)],
        )
        .assert_code(0);
    let [head] = proxy.heads().try_into().expect("one request");
    let head = head.to_lowercase();
    for part in [
        "post http://gateway.example:8080/messages http/1.1\r\n",
        "host: gateway.example:8080\r\n",
        "proxy-authorization: basic a2ltonnly3jlda==\r\n",
    ] {
        assert!(head.contains(part), "{head}");
    }
}

#[test]
fn missing_sender_and_text_are_reported_before_sending() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", SENDERLESS);
    scratch.write("list.csv", "phone\n+447400123456\n");
    snapshot!(scratch.run(["check", "--offline"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    ok       provider       `g` at http://127.0.0.1:[PORT], not connected (`--offline`)
    note     provider       `g`: the request has no text: put `{{ content }}` into `json`, `form` or `query`
    note     sender         `g` has no `from`: every campaign needs a sender (`--from`)
    ");
    snapshot!(scratch.run(["providers", "test", "g", "--to", "+447400123456"]), @r"
    exit 2
    ----- stderr
    error: missing sender: provider `g` needs one
    hint: name one with `--from`, or set `from` in [providers.g]
    ");
    let import = ["import", "list.csv", "--text", "Hi"];
    snapshot!(scratch.run(import), @r"
    exit 2
    ----- stderr
    error: missing sender: provider `g` needs one
    hint: name one with `--from`, or set `from` in [providers.g]
    ");
    assert!(!scratch.path("smsq.db").exists());
    scratch.run(import.into_iter().chain(["--from", "SHOP"])).assert_code(0);
    scratch.run(["check", "--offline"]).assert_code(0);

    // Messages that another program inserts have no sender.
    sqlite(
        &scratch,
        "DELETE FROM sms; INSERT INTO sms (phone, content) VALUES ('+447400123456', 'Hi')",
    );
    let checked = scratch.run(["check", "--offline"]).assert_code(2);
    let output = checked.stdout();
    assert!(
        output.contains("missing sender: campaign `default` and provider `g` have none"),
        "{output}"
    );
    snapshot!(scratch.run(["send", "--no-wait"]), @r"
    exit 2
    ----- stderr
    error: missing sender: campaign `default` and provider `g` have none
    hint: set `from` in [providers.g], or `smsq set --campaign default --from SENDER`
    ");
    assert_eq!(sqlite(&scratch, "SELECT state, attempts FROM sms"), "0|0");
}

#[test]
fn missing_settings_of_a_vendor_are_reported_before_sending() {
    const SETTINGS: &str = "[providers.shop]\nkind = \"tencent\"\nparams = []\n";
    let secrets = [("TENCENT_SECRET_ID", "AKID1"), ("TENCENT_SECRET_KEY", "hunter2")];
    let scratch = Scratch::new();
    scratch.write("smsq.toml", SETTINGS).write("list.csv", "phone\n+8613812345678\n");
    let import = ["import", "list.csv", "--text", "Hi", "--campaign", "c"];
    let ran = scratch.run_with(import, &secrets);
    assert!(ran.stderr().contains("provider `shop` needs one"), "{ran}");
    let named = import.into_iter().chain(["--from", "X"]);
    assert_eq!(scratch.run_with(named, &secrets).code(), Some(0));
    let checked = scratch.run_with(["check", "--offline"], &secrets).assert_code(2);
    let finding = "provider `shop`: missing `sdk_app_id`, `template`";
    assert!(checked.stdout().contains(finding), "{checked}");
    snapshot!(scratch.run_with(["send"], &secrets), @r"
    exit 2
    ----- stderr
    error: provider `shop`: missing `sdk_app_id`, `template`
    hint: set it in [providers.shop]
    ");

    let settings = format!("{SETTINGS}sdk_app_id = \"1\"\ntemplate = \"2\"\n");
    scratch.write("smsq.toml", &settings);
    sqlite(&scratch, "UPDATE campaign SET sender = NULL WHERE name = 'c'");
    let checked = scratch.run_with(["check", "--offline"], &secrets).assert_code(2);
    let finding = "missing sender: campaign `c` and provider `shop` have none";
    assert!(checked.stdout().contains(finding), "{checked}");
    let sent = scratch.run_with(["send"], &secrets).assert_code(2);
    assert!(sent.stderr().contains(finding), "{sent}");
    assert_eq!(sqlite(&scratch, "SELECT state, attempts FROM sms"), "0|0");
}

#[test]
fn campaign_without_sender_stops_no_other() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let toml = SENDERLESS
        .replace("http://127.0.0.1:1/send", &format!("{}/messages", gateway.url()))
        .replace("\"{{ phone }}\" }", "\"{{ phone }}\", text = \"{{ content }}\" }");
    scratch.write("smsq.toml", &toml).write("list.csv", "phone\n+447400123456\n");
    for (name, sender) in [("named", "ACME"), ("none", "X")] {
        let import = ["import", "list.csv", "--text", name, "--campaign", name];
        let more = ["--from", sender, "--again"];
        scratch.run(import.into_iter().chain(more)).assert_code(0);
    }
    sqlite(&scratch, "UPDATE campaign SET sender = NULL WHERE name = 'none'");
    let ran = scratch.run(["send"]).assert_code(3);
    let finding = "missing sender: campaign `none`";
    assert!(ran.stderr().contains(finding), "{ran}");
    let status = scratch.run(["status", "--format", "json"]).json();
    assert_eq!((&status["sent"], &status["queued"]), (&1.into(), &1.into()), "{status}");
}

#[test]
fn check_lists_its_notes_in_json() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", SENDERLESS);
    let ran = scratch.run(["check", "--offline", "--format", "json"]);
    assert_eq!(ran.json()["problems"], serde_json::json!([]), "{ran}");
    let notes = ran.json()["notes"].to_string();
    assert!(notes.contains("the request has no text"), "{ran}");
    assert!(notes.contains("`g` has no `from`"), "{ran}");
}

#[test]
fn send_with_two_providers_and_no_default_says_what_to_set() {
    let scratch = Scratch::new();
    let two = SENDERLESS.replace("{{ from }}", "X");
    scratch.write("smsq.toml", &format!("{two}{}", two.replace(".g]", ".h]")));
    scratch.write("list.csv", "phone\n+447400123456\n");
    let import = ["import", "list.csv", "--text", "Hi", "--campaign", "c"];
    scratch.run(import).assert_code(0);
    snapshot!(scratch.run(["send"]), @r"
    exit 2
    ----- stderr
    error: missing provider: several are configured (g, h)
    hint: set `default_provider` in smsq.toml
    ");
}

/// A log in JSON does not depend on where the source is: its lines have no path of a module.
#[test]
fn lines_of_a_json_log_do_not_name_modules() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "[log]\nlevel = \"debug\"\nformat = \"json\"\n");
    scratch.write("list.csv", "phone\n+447400123456\n");
    let ran = scratch.run(["import", "list.csv", "--text", "Hi"]);
    let said = ran.stderr();
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!lines.is_empty(), "{ran}");
    for line in lines {
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["timestamp", "level", "fields"], "{line}");
    }
}
