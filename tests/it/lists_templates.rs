//! Providers that send their own template with values of columns: invalid rows are rejected at import, and a
//! dry run shows what recipients see.

use crate::support::{Scratch, snapshot};

const LIST: &str = "\
手机号,name,Bestellung
13800138000,王小明,1001
13800138001,,1002
13800138002,李秀英,www.x.cn
13800138003,李秀英,1234567890123
13800138004,陈静,1003
";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write(
        "smsq.toml",
        r#"
default_region = "CN"
[providers.tencent]
sdk_app_id = "1400006666"
from = "腾讯云"
template = "1110"
params = ["name", "order"]
param_length = 12
template_text = "{1}，您的订单{2}已发货"
"#,
    );
    scratch
}

const LINE: [&str; 4] = ["import", "list.csv", "--column", "order=Bestellung"];

#[test]
fn row_that_does_not_fill_the_template_is_rejected() {
    let scratch = scratch();
    snapshot!(scratch.run(LINE), @r"
    exit 0
    ----- stdout
    list.csv into campaign `list-88ff34`
      rows        5
      accepted    2
      duplicates  0
      suppressed  0
      rejected    3 (3 not valid for the provider)
      segments    2 (0 messages in GSM-7, 2 in UCS-2)
    ----- stderr
    warning: `list.csv`: rejected 3 rows, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign list-88ff34 --column 'order=Bestellung'`
    next: `smsq send --campaign list-88ff34`
    ");
    snapshot!(scratch.read("list.rejects.csv"), @r#"
    手机号,name,Bestellung,smsq_text,smsq_line,smsq_reason
    13800138001,,1002,,3,"the template needs parameter `1`, and the message has nothing in column `name`"
    13800138002,李秀英,www.x.cn,,4,"the template needs parameter `2`, and the message has a web address for it, which the vendor forbids"
    13800138003,李秀英,1234567890123,,5,"the template needs parameter `2`, and the message has 13 characters for it, where 12 are allowed"
    "#);
    let queued = scratch.run(["report", "--format", "json"]);
    assert_eq!(queued.json()["queued"], 2, "{queued}");
}

#[test]
fn dry_run_shows_the_rendered_provider_template() {
    let scratch = scratch();
    let dry_run = scratch.run(LINE.into_iter().chain(["--dry-run"]));
    let shown = dry_run.stdout();
    assert!(shown.contains("text        the provider's template\n"), "{dry_run}");
    assert!(shown.contains("\n    王小明，您的订单1001已发货\n"), "{dry_run}");
    let with_text = ["--text", "Hi {{ name }}", "--dry-run"];
    let dry_run = scratch.run(LINE.into_iter().chain(with_text));
    assert!(
        dry_run.stdout().contains("text        with `name`\n")
            && dry_run.stdout().contains("\n    王小明，您的订单1001已发货\n"),
        "{dry_run}"
    );
}

#[test]
fn list_without_a_template_column_is_refused() {
    let scratch = scratch();
    snapshot!(scratch.run(["import", "list.csv"]), @r"
    exit 2
    ----- stderr
    error: missing column `order` in `list.csv`, which the template of provider `tencent` needs
    hint: name it: `--column order=COLUMN`
    ");
    // Another provider accepts the list if it has a text.
    snapshot!(scratch.run(["import", "list.csv", "--provider", "sandbox"]), @r"
    exit 2
    ----- stderr
    error: missing column `content` in `list.csv`, and no text is given
    hint: give the text with `--text` or `--template`
    ");
    assert!(!scratch.path("smsq.db").exists());
    let line = ["import", "list.csv", "--provider", "sandbox", "--text", "Hi"];
    let ran = scratch.run(line);
    assert!(ran.stdout().contains("accepted    5\n"), "{ran}");
}

#[test]
fn provider_of_the_campaign_is_checked() {
    let scratch = scratch();
    let named = ["--campaign", "spring", "--text", "Hi"];
    let other = ["import", "list.csv", "--provider", "sandbox"];
    let ran = scratch.run(other.into_iter().chain(named));
    assert!(ran.stdout().contains("accepted    5\n"), "{ran}");
    scratch.write("more.csv", "phone\n13800138009\n");
    let ran = scratch.run(["import", "more.csv"].into_iter().chain(named));
    assert!(ran.stdout().contains("accepted    1\n"), "{ran}");
    scratch.run(["import", "more.csv", "--text", "Hi"]).assert_code(2);
}

#[test]
fn columns_of_a_provider_section_are_needed() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,cod\n+447400123456,1\n").write(
        "smsq.toml",
        r#"
[providers.cellar]
kind = "generic"
url = "http://127.0.0.1:9"
json = { to = "{{ phone }}", code = "{{ params.code }}", kind = "{{ params.kind | default('x') }}" }
"#,
    );
    let ran = scratch.run(["import", "list.csv", "--text", "Hi"]).assert_code(1);
    let reason = "`json.code` needs column `code`, which the message lacks\"\n";
    assert!(scratch.read("list.rejects.csv").ends_with(reason), "{ran}");
    scratch.write("list.csv", "phone,code\n+447400123456,1\n");
    let ran = scratch.run(["import", "list.csv", "--text", "Hi"]);
    assert!(ran.stdout().contains("accepted    1\n"), "{ran}");
}
