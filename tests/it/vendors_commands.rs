//! `smsq providers` and `smsq check` with vendors: what they show, and that they never show a secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::scripted::Scripted;
use crate::support::{Scratch, snapshot};

#[test]
fn providers_show_lists_missing_settings() {
    let scratch = Scratch::new();
    scratch.write(
        "smsq.toml",
        "[providers.shop]\nkind = \"infobip\"\nurl = \"https://x1.api.infobip.com\"\n",
    );
    let ran = scratch.run_with(["providers", "show", "shop"], &[("INFOBIP_API_KEY", "hunter2")]);
    let shown = ran.stdout();
    for line in [
        "limit      100/s messages",
        "timeout    15 s: the message is looked up after 1m; if the provider does not know it after 15m, it is sent \
         again; without a clear result it is sent again with the same reference, which this provider accepts only \
         once in 48h",
        "sends      the text of each message, up to 100 messages per request",
        "reference  each is accepted once",
        "receipts   fetched; the provider returns each only once; `smsq receipts --recheck` finds what was lost",
        "webhook    reads posted receipts and replies; only the token in the address protects it",
        "secret     api_key: environment variable INFOBIP_API_KEY, set",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "`{line}` is not in\n{shown}");
    }
    let credit = "12       account      no credit: top up, then `smsq send` again";
    assert!(shown.contains(credit), "{shown}");
    assert!(!ran.to_string().contains("hunter2"), "{ran}");
    snapshot!(scratch.run(["providers", "show", "aliyun", "--format", "json"]).json()["missing"], @r#"["template"]"#);
    let ran = scratch.run(["providers", "show", "aliyun"]);
    let output = ran.stderr();
    assert!(output.contains("missing `template`"), "{output}");
    assert!(output.contains("missing secret"), "{output}");
}

#[test]
fn providers_show_whether_signatures_are_checked() {
    let scratch = Scratch::new();
    scratch.write("secret", "hunter2");
    let file = scratch.path("secret");
    scratch.write(
        "smsq.toml",
        &format!(
            "[providers.filed]\nkind = \"sinch\"\nwebhook = {{ secret = {{ file = '{}' }} }}\n",
            file.display()
        ),
    );
    let line = |name: &str, variables: &[(&str, &str)]| {
        let ran = scratch.run_with(["providers", "show", name], variables);
        let shown = ran.stdout();
        let line = shown.lines().find(|line| line.starts_with("webhook "));
        assert!(!ran.to_string().contains("hunter2"), "{ran}");
        line.unwrap_or_else(|| panic!("{ran}")).to_owned()
    };
    assert_eq!(
        line("vonage", &[]),
        "webhook    reads posted receipts and replies; does not check the signature `vonage`: the environment \
         variable `VONAGE_SIGNATURE_SECRET` is not set"
    );
    for (name, variables) in
        [("vonage", &[("VONAGE_SIGNATURE_SECRET", "hunter2")][..]), ("twilio", &[]), ("filed", &[])]
    {
        let line = line(name, variables);
        assert!(line.contains("; checks the signature `"), "{line}");
    }
}

#[test]
fn check_reports_settings_and_malformed_credentials() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "[providers.aliyun]\nkind = \"aliyun\"\nfrom = \"X\"\n");
    let secrets = [("ALIYUN_ACCESS_KEY_ID", "hunter1"), ("ALIYUN_ACCESS_KEY_SECRET", "hunter2")];
    snapshot!(scratch.run_with(["check"], &secrets), @r"
    exit 2
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    problem  provider       provider `aliyun`: missing `template`
                            hint: set it in [providers.aliyun]
    note     provider       `aliyun`: secret `access_key_id` does not look like an AccessKey ID (`LTAI…`)
    ");
}

#[test]
fn providers_test_prints_the_exchange_without_secrets() {
    let scratch = Scratch::new();
    // No server listens on this port.
    scratch.write(
        "smsq.toml",
        "[providers.t]\nkind = \"tencent\"\nurl = \"http://127.0.0.1:1/\"\nfrom = \"S\"\nsdk_app_id = \"1400\"\n\
         template = \"1\"\nparams = [\"order\"]\ntemplate_text = \"order {1}!\"\n",
    );
    let secrets = [("TENCENT_SECRET_ID", "AKIDhunter"), ("TENCENT_SECRET_KEY", "hunter2")];
    let line = ["providers", "test", "t", "--to", "+8613812345678"];
    let ran = scratch.run_with(line, &secrets).assert_code(1);
    assert!(ran.stdout().starts_with("rejected: the template needs parameter `1`"), "{ran}");
    let ran = scratch.run_with(line.into_iter().chain(["--param", "order=4711"]), &secrets);
    let output = ran.to_string();
    assert!(output.contains("text as the recipient sees it: order 4711!"), "{output}");
    assert!(output.contains("> POST http://127.0.0.1:1/"), "{output}");
    assert!(output.contains("Credential=[secret_id]/"), "{output}");
    assert!(ran.stdout().starts_with("unavailable: no connection"), "{output}");
    assert!(!output.contains("hunter"), "{output}");
}

#[test]
fn encoded_secrets_in_a_response_are_hidden() {
    let (user, password) = ("shop-account", "S3CR3T/+tok en\"9");
    let basic = STANDARD.encode(format!("{user}:{password}"));
    let form = "S3CR3T%2F%2Btok+en%229";
    let body = format!(
        r#"{{"error":{{"code":"Basic {basic}","message":"bad header Authorization: Basic {basic}"}},"line":"/send?key={form}"}}"#
    );
    let gateway = Scripted::start("400 Bad Request", &body);
    let scratch = Scratch::new();
    let section = format!(
        r#"
[providers.g]
kind = "generic"
url = "{}/send"
headers = {{ Authorization = "Basic {{{{ (secret.user ~ ':' ~ secret.password) | base64 }}}}" }}
query = {{ key = "{{{{ secret.password }}}}" }}
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}
secrets = {{ user = {{ env = "G_USER" }}, password = {{ env = "G_PASSWORD" }} }}
error_code = "/error/code"
error_reason = "/error/message"
"#,
        gateway.url()
    );
    scratch.write("smsq.toml", &section);
    scratch.write("list.csv", "phone\n+447400123456\n");
    let secrets = [("G_USER", user), ("G_PASSWORD", password)];
    let mut output = String::new();
    for line in [
        "import list.csv --text Hi --campaign c",
        "send -v --no-wait",
        "report --failed",
        "report --failed --format csv",
        "report --failed --format json",
        "report --format html",
        "providers test g --to +447400123456",
        "providers test g --to +447400123456 --format json",
    ] {
        let ran = scratch.run_with(line.split(' '), &secrets);
        assert_ne!(ran.code(), Some(2), "{line}: {ran}");
        output.push_str(&ran.to_string());
    }
    assert!(output.contains("the gateway answered 400 Bad Request"), "{output}");
    let database = std::fs::read(scratch.path("smsq.db")).expect("a database");
    output.push_str(&String::from_utf8_lossy(&database));
    for form in [basic.as_str(), form, password, "S3CR3T"] {
        assert!(!output.contains(form), "{form} is in\n{output}");
    }
}
