//! Whole jobs, from the list to the report, against the practice gateway.

use crate::support::{Gateway, LIST, Scratch, repository, snapshot};

#[test]
fn run_without_provider_practises_and_can_be_repeated() {
    let scratch = Scratch::new();
    let list = repository("tests/fixtures/recipients.csv");
    let template = repository("templates/welcome.txt");
    let line = ["run", &list, "--template", &template, "--format", "json"];
    let ran = scratch.run(line).assert_code(0);
    assert!(ran.stderr().contains("nothing leaves this machine"), "{ran}");
    let first = ran.json();
    assert_eq!(first["state"], "done", "{ran}");
    assert_eq!(first["sent"], first["imported"], "{ran}");
    assert!(scratch.path("smsq-practice.db").exists());
    assert!(!scratch.path("smsq.db").exists());

    let ran = scratch.run(line).assert_code(0);
    assert!(ran.stderr().contains("nothing new"), "{ran}");
    assert_eq!(ran.json()["attempts"], 0, "{ran}");
    assert_eq!(ran.json()["sent"], first["sent"], "{ran}");
}

#[test]
fn run_with_missing_list_prints_only_the_error() {
    let scratch = Scratch::new();
    let ran = scratch.run(["run", "missing.csv", "--text", "Hi"]).assert_code(2);
    assert!(ran.stderr().starts_with("error: `missing.csv`"), "{ran}");
    assert!(!scratch.path("smsq-practice.db").exists());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a whole conversation")]
fn list_is_imported_sent_and_reported() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.write("list.csv", LIST);
    let import = ["import", "list.csv", "--text", "Hi {{ name }}", "--campaign", "spring"];
    snapshot!(scratch.run(import), @r"
    exit 0
    ----- stdout
    list.csv into campaign `spring`
      rows        6
      accepted    4
      duplicates  1 (line 7 repeats line 2)
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    4 (4 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign spring --text 'Hi {{ name }}'`
    next: `smsq send --campaign spring`
    ");
    snapshot!(scratch.read("list.rejects.csv"), @r#"
    phone,name,smsq_text,smsq_line,smsq_reason
    1.38E10,Eve,,6,"`1.38E10` is a number in scientific notation, its last digits may be lost: format the column as text where the file came from, and export it again"
    "#);
    snapshot!(scratch.run(import), @r"
    exit 0
    ----- stdout
    list.csv into campaign `spring`
      rows        6
      accepted    0
      duplicates  5 (line 7 repeats line 2)
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    0 (0 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign spring --text 'Hi {{ name }}'`
    `list.csv`: nothing new, campaign `spring` already has 5 messages of it
    next: `smsq send --campaign spring`
    ");
    snapshot!(scratch.run(["send"]), @r"
    exit 1
    ----- stdout
    sent 3 messages in [TIME] ([RATE]), 1 tried again, 1 failed
    ----- stderr
    `smsq report --campaign spring --failed` lists who was not reached and why
    ");
    snapshot!(scratch.run(["status"]), @r"
    exit 0
    ----- stdout
    spring: done

       imported  4
       sent      3  75.0 %
       failed    1  25.0 %
    ");
    snapshot!(scratch.run(["status", "--campaign", "spring", "--format", "json"]), @r#"
    exit 0
    ----- stdout
    {
      "campaign": "spring",
      "practice": false,
      "state": "done",
      "state_reason": null,
      "imported": 4,
      "queued": 0,
      "sending": 0,
      "sent": 3,
      "failed": 1,
      "unknown": 0,
      "cancelled": 0,
      "workers": [],
      "stops": [],
      "waiting_by_provider": [],
      "failovers": [],
      "slowest_senders": [],
      "senders_off": [],
      "last_failures": []
    }
    "#);
    snapshot!(scratch.run(["report", "--campaign", "spring"]), @r"
    exit 0
    ----- stdout
    spring: done

       imported  4
       sent      3  75.0 %
       failed    1  25.0 %

      text        Hi {{ name }}
      sent        [DATE] to [DATE]
      provider    cellar
      segments    3 (4 messages imported in GSM-7, 0 in UCS-2)
      opted out   1 (of the failed)
      lists       list.csv (2 imports, 12 rows: 4 accepted, 6 duplicates, 0 suppressed, 2 rejected)
      countries   GB +44: 2 messages, 2 segments
                  US +1: 1 message, 1 segment

    Why they did not arrive

       1  asked for no more messages (opted_out opted_out)
          → do not send again: they asked for no more messages

    Next
      smsq report --campaign spring --failed --format csv --output failed.csv
          writes the failed messages to a file: fix it and import it again
    ");
    snapshot!(scratch.run(["report", "--failed", "--format", "csv", "--output", "failed.csv"]), @r"
    exit 0
    ----- stderr
    wrote `failed.csv`
    ");
    snapshot!(scratch.read("failed.csv"), @r"
    phone,content,name,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts
    +15005552000,Hi Carla,Carla,3,failed,opted_out,opted_out,asked for no more messages,1
    ");
    snapshot!(scratch.run(["check"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       smsq.db
    ok       provider       `cellar` at http://127.0.0.1:[PORT], connected
    ok       nothing lost   4 messages of 2 imports
    ");
}

#[test]
fn fixed_failure_is_sent_and_unchanged_one_is_not() {
    let scratch = Scratch::new();
    let gateway = Gateway::start(&scratch, &[]);
    // A recipient who opted out would be on the suppression list.
    let list = LIST.replace("555 2000", "555 1000");
    scratch.write_cellar(&gateway.url).write("list.csv", &list);
    scratch.run(["import", "list.csv", "--text", "Hi {{ name }}", "--campaign", "spring"]);
    scratch.run(["send"]);
    scratch.run(["report", "--failed", "--format", "csv", "--output", "failed.csv"]);
    let import = ["import", "failed.csv", "--campaign", "spring"];
    snapshot!(scratch.run(import), @r"
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
    1 message failed before and did not change: `smsq retry --campaign spring` sends such messages again
    ");
    let fixed = scratch.read("failed.csv").replace("+15005551000", "+447400123458");
    scratch.write("failed.csv", &fixed);
    snapshot!(scratch.run(import), @r"
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
    snapshot!(scratch.run(["send", "--format", "json", "--campaign", "spring"]), @r#"
    exit 0
    ----- stdout
    {
      "campaign": "spring",
      "practice": false,
      "state": "done",
      "state_reason": null,
      "imported": 4,
      "queued": 0,
      "sending": 0,
      "sent": 4,
      "failed": 0,
      "unknown": 0,
      "cancelled": 0,
      "elapsed_ms": [TIME],
      "rate": [RATE],
      "attempts": 1,
      "limited_by": null
    }
    "#);
    snapshot!(scratch.run(["check"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       smsq.db
    ok       provider       `cellar` at http://127.0.0.1:[PORT], connected
    ok       nothing lost   4 messages of 3 imports
    ");
}

#[test]
fn send_without_provider_prints_a_hint() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST);
    scratch.run(["import", "list.csv", "--text", "Hi {{ name }}"]);
    snapshot!(scratch.run(["send"]), @r"
    exit 2
    ----- stderr
    error: no provider is configured
    hint: `smsq init` writes a file that describes one; `--practice` practises, and no phone gets a message
    ");
}

#[test]
fn practice_sends_a_whole_list_of_ordinary_numbers() {
    let scratch = Scratch::new();
    // Every ending from 0000 to 2999.
    let phones = (0..3_000).map(|line| format!("+44740015{line:04}\n"));
    let list: String = std::iter::once("phone\n".to_owned()).chain(phones).collect();
    scratch.write("list.csv", &list);
    let ran =
        scratch.run(["run", "list.csv", "--text", "Hello", "--format", "json"]).assert_code(0);
    let object = ran.json();
    assert_eq!((&object["sent"], &object["failed"]), (&3_000.into(), &0.into()), "{ran}");
}
