//! Messages that were perhaps accepted, at a provider that can be asked: it is asked, and nothing is sent twice.

use std::time::Duration;

use rustix::process::Signal;
use smsq::sandbox::{Behaviour, Faults};

use crate::support::Scratch;
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::shell::sqlite;

const SEND: [&str; 3] = ["send", "--slots", "8"];

/// A 503 says nothing here, though the gateway did not take the message; and it answers some too late.
const UNSURE: &str = "timeout = \"500ms\"\nunknown_status = [503]\n";

fn gateway() -> Practice {
    Practice::start(Behaviour {
        faults: Faults {
            slow_for: Duration::from_secs(20),
            ..Faults::default()
        },
        ..Behaviour::default()
    })
}

fn look_up(gateway: &Practice, more: &str) -> String {
    format!(
        r#"{UNSURE}
[providers.cellar.look_up]
url = "http://{}/messages"
query = {{ reference = "{{{{ reference }}}}" }}
list = ""
matches = {{ "/reference" = "{{{{ reference }}}}" }}
message_id = "/id"
rate = "20/s"
{more}
"#,
        gateway.address()
    )
}

/// Taken but answered too late, taken and not answered, never taken; and some without any trouble.
fn mixed_list() -> String {
    let faults = [6, 5, 3];
    let odd = faults.map(|fault| reserved_list(fault, 2).replace("phone\n", ""));
    format!("{}{}", list(4), odd.concat())
}

#[test]
fn what_the_provider_has_is_sent_and_what_it_never_had_is_sent_once() {
    let gateway = gateway();
    let scratch = Scratch::new();
    let when = "after = \"200ms\"\nabsent_after = \"1500ms\"";
    gateway.forgetful(&scratch, &look_up(&gateway, when));
    scratch.import(&mixed_list());
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["sent"], 10, "{standing}");
    gateway.assert_each_once(10);
    // One request each, and one more for those two that never arrived.
    assert_eq!(gateway.requests(), 12);
    let twice = "SELECT count(*) FROM sms_sent WHERE attempts > 1 AND phone NOT LIKE '+15005553%'";
    assert_eq!(sqlite(&scratch, twice), "0");
    let nameless = "SELECT count(*) FROM sms_sent WHERE message_id IS NULL OR accepted <> 1";
    assert_eq!(sqlite(&scratch, nameless), "0");
}

#[test]
fn what_an_earlier_run_left_unknown_is_asked_for_and_not_sent_again() {
    let gateway = gateway();
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, UNSURE);
    scratch.import(&reserved_list(6, 3));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert_eq!(scratch.sound_standing(Some("c"))["unknown"], 3);
    let when = "after = \"100ms\"\nabsent_after = \"10min\"";
    gateway.forgetful(&scratch, &look_up(&gateway, when));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    assert_eq!(scratch.sound_standing(Some("c"))["sent"], 3);
    gateway.assert_each_once(3);
    assert_eq!(gateway.requests(), 3);
}

#[test]
fn who_does_not_want_to_wait_for_answers_need_not() {
    let gateway = gateway();
    let scratch = Scratch::new();
    let when = "after = \"100ms\"\nabsent_after = \"10min\"";
    gateway.forgetful(&scratch, &look_up(&gateway, when));
    scratch.import(&reserved_list(3, 2));
    let mut sending = scratch.start(SEND);
    sending.until_said("it says what it waits for", |said| {
        said.contains("is asked what became of")
    });
    sending.signal(Signal::INT);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(130), "{ran}");
    assert_eq!(scratch.sound_standing(Some("c"))["unknown"], 2);
    assert_eq!(gateway.requests(), 2);
}

#[test]
fn a_provider_that_cannot_tell_absence_leaves_it_to_the_operator() {
    let gateway = gateway();
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, &look_up(&gateway, "after = \"200ms\""));
    scratch.import(&reserved_list(3, 2));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert_eq!(scratch.sound_standing(Some("c"))["unknown"], 2);
    assert_eq!(gateway.requests(), 2);
}

#[test]
fn a_reference_that_is_honoured_no_more_is_not_relied_on() {
    let gateway = gateway();
    let scratch = Scratch::new();
    gateway.forgetful(
        &scratch,
        "timeout = \"500ms\"\nhonours_reference = true\nhonoured_for = \"1h\"",
    );
    scratch.import(&reserved_list(5, 2));
    let age = "UPDATE sms SET state = 2, in_doubt = 1, attempts = 1, claim = 1, reference = 'r' || id, \
        claimed_at = created_at - 7200000 * (id = (SELECT min(id) FROM sms))";
    sqlite(&scratch, age);
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["unknown"], 1, "{standing}");
    assert_eq!(standing["sent"], 1, "{standing}");
}
