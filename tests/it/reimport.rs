//! Failures files that are fixed and imported: they go back to their campaign.

use crate::support::{Gateway, Scratch, snapshot};

/// A good row, and one with a phone that the practice gateway rejects.
const LIST: &str = "phone,name,order\n+447400123456,Ann,1\n+15005551000,Carla,2\n";

/// Imports the list into a campaign, sends it, and writes its failures.
fn failed(scratch: &Scratch, list: &str, campaign: &str, more: &[&str]) {
    scratch.write("list.csv", list);
    let mut import = vec!["import", "list.csv", "--text", "Hi {{ name }}"];
    import.extend(["--campaign", campaign]);
    import.extend(more);
    scratch.run(import).assert_code(0);
    scratch.run(["send"]).assert_code(1);
    report(scratch);
}

/// Writes the failures of all campaigns.
fn report(scratch: &Scratch) {
    let line = ["report", "--failed", "--format", "csv", "--output", "failed.csv"];
    let _ = std::fs::remove_file(scratch.path("failed.csv"));
    scratch.run(line).assert_code(0);
}

fn fix(scratch: &Scratch, wrong: &str, right: &str) {
    let text = scratch.read("failed.csv");
    assert!(text.contains(wrong), "{text}");
    scratch.write("failed.csv", &text.replace(wrong, right));
}

#[test]
fn fixed_failures_go_back_to_their_campaign() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    failed(&scratch, LIST, "spring", &[]);
    fix(&scratch, "+15005551000", "+447400123458");
    snapshot!(scratch.run(["import", "failed.csv"]), @r"
    exit 0
    ----- stdout
    failed.csv into campaign `spring`
      rows        1
      accepted    1
      duplicates  0
      suppressed  0
      rejected    0
      segments    1 (1 message in GSM-7, 0 in UCS-2)
    ----- stderr
    next: `smsq send --campaign spring`
    ");
    assert_eq!(scratch.checked_status(Some("spring"))["queued"], 1);
    snapshot!(scratch.run(["import", "failed.csv"]), @r"
    exit 0
    ----- stdout
    failed.csv into campaign `spring`
      rows        1
      accepted    0
      duplicates  1
      suppressed  0
      rejected    0
      segments    0 (0 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    `failed.csv`: nothing new, campaign `spring` already has 1 message of it
    next: `smsq send --campaign spring`
    ");
    scratch.run(["send"]).assert_code(0);
    let status = scratch.checked_status(Some("spring"));
    assert_eq!((&status["sent"], &status["failed"]), (&2.into(), &0.into()));
    assert_eq!(scratch.checked_status(None)["imported"], 2);
}

#[test]
fn dry_run_of_failures_matches_the_import() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    let list = format!("{LIST}+15005551001,Dan,3\n+15005551002,Eve,4\n");
    failed(&scratch, &list, "spring", &[]);
    fix(&scratch, "+15005551001", "+447400123458");
    scratch.run(["suppress", "add", "+15005551002"]);
    snapshot!(scratch.run(["import", "failed.csv", "--dry-run"]), @r"
    exit 0
    ----- stdout
    failed.csv into campaign `spring`
      list        CSV in UTF-8, `,` between the fields, header in line 1
      phone       `phone`
      text        column `content`
      rows        3
      would send  1
      duplicates  1
      suppressed  1
      rejected    0
      segments    1 (1 message in GSM-7, 0 in UCS-2)
      sending     without a rate limit

      line 3 to +447400123458: 1 × GSM-7
        Hi Dan
    ----- stderr
    1 message failed before and did not change: `smsq retry --campaign spring` sends such messages again
    dry run: nothing was written
    ");
    snapshot!(scratch.run(["import", "failed.csv"]), @r"
    exit 0
    ----- stdout
    failed.csv into campaign `spring`
      rows        3
      accepted    1
      duplicates  1
      suppressed  1
      rejected    0
      segments    1 (1 message in GSM-7, 0 in UCS-2)
    ----- stderr
    1 message failed before and did not change: `smsq retry --campaign spring` sends such messages again
    next: `smsq send --campaign spring`
    ");
}

#[test]
fn failures_of_several_campaigns_need_a_name() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    failed(&scratch, LIST, "spring", &[]);
    failed(&scratch, LIST, "autumn", &["--again"]);
    let dry = scratch.run(["import", "failed.csv", "--dry-run"]).assert_code(2);
    assert!(dry.stderr().contains("`spring`, `autumn`"), "{dry}");
    snapshot!(scratch.run(["import", "failed.csv"]), @r"
    exit 2
    ----- stderr
    error: the rows of `failed.csv` are messages of several campaigns: `spring`, `autumn`
    hint: choose one with `--campaign NAME`, or import one campaign at a time: `smsq report --campaign NAME --failed` has the failures of one
    ");
    assert_eq!(scratch.checked_status(None)["queued"], 0);
}

#[test]
fn failures_of_another_database_are_a_new_campaign() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    failed(&scratch, LIST, "spring", &[]);
    let other = "phone,content,smsq_id\n+447400123999,Elsewhere,2\n+447400123998,Elsewhere,77\n";
    scratch.write("failed.csv", other);
    let ran = scratch.run(["import", "failed.csv", "--format", "json"]);
    assert_eq!(ran.json()["campaign"], "failed", "{ran}");
    assert_eq!(ran.json()["accepted"], 2, "{ran}");
}

#[test]
fn failures_are_replaced_for_every_unique() {
    for unique in ["none", "order", "phone,order"] {
        let scratch = Scratch::new();
        let _gateway = Gateway::start_cellar(&scratch, &[]);
        failed(&scratch, LIST, "spring", &["--unique", unique]);
        fix(&scratch, "+15005551000", "+447400123458");
        let preview = scratch.run(["import", "failed.csv", "--dry-run", "--format", "json"]);
        assert_eq!(preview.json()["accepted"], 1, "{unique}: {preview}");
        let ran = scratch.run(["import", "failed.csv", "--format", "json"]);
        assert_eq!(ran.json()["accepted"], 1, "{unique}: {ran}");
        let status = scratch.checked_status(Some("spring"));
        assert_eq!(status["imported"], 2, "{unique}: {status}");
        assert_eq!(status["failed"], 0, "{unique}: {status}");
    }
}

#[test]
fn renamed_phone_column_keeps_the_key() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    let list = LIST.replace("phone", "mobile");
    failed(&scratch, &list, "spring", &["--unique", "mobile,order"]);
    fix(&scratch, "Hi Carla", "Hello Carla");
    let line = ["import", "failed.csv", "--column", "mobile=phone"];
    let ran = scratch.run(line.into_iter().chain(["--format", "json"]));
    assert_eq!(ran.json()["accepted"], 1, "{ran}");
    assert_eq!(scratch.checked_status(Some("spring"))["imported"], 2);
}
