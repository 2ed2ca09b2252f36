//! How an account error, an operator or a signal stops sending, and how it continues.

use rustix::process::Signal;

use crate::support::practice::list;
use crate::support::waiting::eventually;
use crate::support::{Gateway, LIST, Scratch, snapshot};

#[test]
fn account_error_stops_the_campaign_and_keeps_messages() {
    let scratch = Scratch::new();
    scratch.write("faults.toml", "account_from = 1\n");
    let gateway = Gateway::start_cellar(&scratch, &["--faults", "faults.toml"]);
    scratch.write("list.csv", LIST);
    scratch.run(["import", "list.csv", "--text", "Hi {{ name }}", "--campaign", "spring"]);
    scratch.run(["send", "--concurrency", "1"]).assert_code(3);
    let status = scratch.checked_status(Some("spring"));
    assert_eq!(status["state"], "stopped");
    assert_eq!(status["queued"], status["imported"]);
    drop(gateway);
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    let ran = scratch.run(["send"]).assert_code(1);
    assert!(ran.stderr().contains("trying again"), "{ran}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one way through all states")]
fn paused_campaign_waits_and_cancelled_one_is_reimported() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.write("list.csv", LIST);
    let import = ["import", "list.csv", "--text", "Hi {{ name }}", "--campaign", "spring"];
    scratch.run(import);
    snapshot!(scratch.run(["pause", "spring"]), @r"
    exit 0
    ----- stderr
    paused campaign `spring`; running workers stop within seconds
    ");
    let status = scratch.run(["status"]);
    assert!(status.stdout().starts_with("spring: paused by `smsq pause`\n"), "{status}");
    snapshot!(scratch.run(["send"]), @r"
    exit 3
    ----- stdout
    nothing was sent
    ----- stderr
    error: campaign `spring`: paused by `smsq pause`
    hint: nothing was lost; `smsq resume --campaign spring`, then `smsq send`
    ");
    snapshot!(scratch.run(["resume", "--campaign", "spring", "--format", "json"]), @r#"
    exit 0
    ----- stdout
    {
      "campaign": "spring",
      "state": "active"
    }
    ----- stderr
    resumed campaign `spring`, which was paused; next: `smsq send`
    "#);
    snapshot!(scratch.run(["cancel", "--campaign", "spring"]), @r"
    exit 0
    ----- stderr
    cancelled campaign `spring`: 4 messages will not be sent; requests in flight are still settled
    ");
    snapshot!(scratch.run(["send", "--campaign", "spring"]), @r"
    exit 2
    ----- stderr
    error: campaign `spring` is cancelled
    hint: import its list again, or `smsq resume` it
    ");
    snapshot!(scratch.run(["status"]), @r"
    exit 0
    ----- stdout
    spring: cancelled by `smsq cancel`

       imported   4
       sent       0    0.0 %
       failed     0    0.0 %
       cancelled  4  100.0 %
    ");
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
    campaign `spring` was cancelled: it is active again
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign spring --text 'Hi {{ name }}'`
    next: `smsq send --campaign spring`
    ");
    snapshot!(scratch.run(["pause", "--campaign", "sprint"]), @r"
    exit 2
    ----- stderr
    error: unknown campaign `sprint` in smsq.db
    hint: did you mean `spring`?
    ");
    snapshot!(scratch.run(["set", "--campaign", "spring", "--rate", "5/s", "--priority", "-1"]), @r"
    exit 0
    ----- stderr
    campaign `spring`: at most 5/s, priority -1, sent by the default provider
    ");
    snapshot!(scratch.run(["set", "--campaign", "spring", "--provider", "celar"]), @r"
    exit 2
    ----- stderr
    error: unknown provider `celar`
    hint: did you mean `cellar`?
    ");
}

#[test]
fn retry_of_cancelled_campaign_is_rejected() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST);
    let text = ["--text", "Hi {{ name }}", "--campaign", "spring"];
    scratch.run([&["import", "list.csv"], &text[..]].concat());
    scratch.run(["cancel", "--campaign", "spring"]);
    for more in [&["--class", "cancelled"][..], &["--unknown"], &[]] {
        let of_it = ["retry", "--campaign", "spring"];
        let ran = scratch.run([&of_it, more].concat()).assert_code(2);
        assert!(ran.stderr().contains("campaign `spring` is cancelled"), "{ran}");
        assert!(ran.stderr().contains("smsq resume --campaign spring"), "{ran}");
    }
    let everywhere = ["retry", "--class", "cancelled"];
    let ran = scratch.run(everywhere);
    assert!(ran.stderr().contains("nothing was changed"), "{ran}");
    scratch.run(["resume", "--campaign", "spring"]);
    let ran = scratch.run(everywhere);
    assert!(ran.stderr().contains("put 4 messages back into the queue"), "{ran}");
}

#[test]
fn signal_stops_sending_and_next_send_continues() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &["--latency", "30ms"]);
    scratch.import(&list(300));
    let mut sending = scratch.start(["send", "-v", "--concurrency", "2"]);
    sending.until_printed("a masked phone", |printed| {
        let first = printed.lines().find(|line| line.contains("+4474"));
        first.is_some_and(|line| line.contains("****"))
    });
    sending.signal(Signal::INT);
    let ran = sending.ended().assert_code(130);
    assert!(ran.stderr().contains("`smsq send` continues"), "{ran}");

    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sending"], 0, "{status}");
    assert_ne!(status["queued"], 0, "{status}");
    scratch.run(["send"]).assert_code(0);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 300);
}

#[test]
fn second_signal_leaves_messages_in_flight_unknown() {
    let scratch = Scratch::new();
    scratch.write("faults.toml", "slow = '100%'\nslow_for = '60s'\n");
    let gateway = Gateway::start_cellar(&scratch, &["--faults", "faults.toml"]);
    scratch.write("list.csv", "phone\n+447400123456\n");
    let fixed = scratch.read("smsq.toml").replace("timeout = \"2s\"", "timeout = \"25s\"");
    scratch.write("smsq.toml", &fixed);
    scratch.run(["import", "list.csv", "--text", "Hi", "--campaign", "spring"]);
    let mut sending = scratch.start(["send"]);
    gateway.wait_for_a_request();
    sending.signal(Signal::INT);
    sending.until_printed("that it waits", |printed| printed.contains("settled first"));
    // The same signal within a second counts once.
    eventually("it aborts", || {
        sending.signal(Signal::INT);
        sending.has_ended()
    });
    let ran = sending.ended().assert_code(130);
    assert!(ran.stderr().contains("aborted"), "{ran}");

    let ran = scratch.run(["send", "--campaign", "spring", "--format", "json"]).assert_code(1);
    assert_eq!(ran.json()["unknown"], 1, "{ran}");
    assert_eq!(ran.json()["attempts"], 0, "{ran}");
    snapshot!(scratch.run(["settle", "--campaign", "spring", "--unknown", "sent"]), @r"
    exit 0
    ----- stderr
    settled 1 message as sent
    ");
    snapshot!(scratch.run(["check"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       smsq.db
    ok       provider       `cellar` at http://127.0.0.1:[PORT], connected
    ok       nothing lost   1 message of 1 import
    ");
}
