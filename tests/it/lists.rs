//! Imports of CSV lists: accepted, suppressed and rejected rows, and lists that are refused.

use crate::support::{LIST, Scratch, snapshot};

#[test]
fn suppressed_phones_are_left_out() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write("stop.txt", "phone\n+44 7400 123457\nnobody\n");
    snapshot!(scratch.run(["suppress", "add", "+447400123456", "--reason", "asked"]), @r"
    exit 0
    ----- stderr
    added 1 number to the suppression list
    ");
    snapshot!(scratch.run(["suppress", "import", "stop.txt"]), @r"
    exit 0
    ----- stderr
    warning: stop.txt:3: `nobody` is not a phone number
    warning: `stop.txt`: rejected 1 row, with the reasons in `stop.rejects.csv`
    added 1 number to the suppression list
    ");
    snapshot!(scratch.run(["suppress", "list"]), @r"
    exit 0
    ----- stdout
    +447400123456	asked
    +447400123457
    ");
    let import = ["import", "list.csv", "--text", "Hi {{ name }}", "--format", "json"];
    snapshot!(scratch.run(import), @r#"
    exit 0
    ----- stdout
    {
      "campaign": "list-2bcbc5",
      "practice": false,
      "rows": 6,
      "accepted": 2,
      "duplicates": 0,
      "suppressed": 3,
      "rejected": 1,
      "rejects_file": "list.rejects.csv",
      "segments": {
        "messages": 2,
        "total": 2,
        "gsm7": 2,
        "ucs2": 0
      },
      "cost": null,
      "due_at": null,
      "expires_at": null,
      "by_reason": [
        {
          "reason": "scientific notation",
          "count": 1
        }
      ],
      "waits_for_approval": null
    }
    ----- stderr
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign list-2bcbc5 --text 'Hi {{ name }}'`
    next: `smsq send --campaign list-2bcbc5`
    "#);
    snapshot!(scratch.run(["suppress", "remove", "+447400123456", "+447400123499"]), @r"
    exit 0
    ----- stderr
    removed 1 number from the suppression list
    ");
}

#[test]
fn fault_of_the_whole_list_writes_nothing() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write("empty.csv", "");
    snapshot!(scratch.run(["import", "list.csv", "missing.csv", "--text", "Hi"]), @r"
    exit 2
    ----- stderr
    error: `missing.csv` does not exist
    ");
    snapshot!(scratch.run(["import", "empty.csv", "--text", "Hi"]), @r"
    exit 2
    ----- stderr
    error: `empty.csv` is empty
    ");
    snapshot!(scratch.run(["import", ".", "--text", "Hi"]), @r"
    exit 2
    ----- stderr
    error: `.` is a folder
    ");
    snapshot!(scratch.run(["import", "list.csv"]), @r"
    exit 2
    ----- stderr
    error: missing column `content` in `list.csv`, and no text is given
    hint: give the text with `--text` or `--template`
    ");
    snapshot!(scratch.run(["import", "list.csv", "--text", "Hi {{ nam }}"]), @r"
    exit 2
    ----- stderr
    error: unknown column `nam` in `--text`: `list.csv` does not have it
    hint: did you mean `name`?
    ");
    snapshot!(scratch.run(["import", "list.csv", "--text", "Hi", "--provider", "sandbax"]), @r"
    exit 2
    ----- stderr
    error: unknown provider `sandbax`
    hint: did you mean `sandbox`?
    ");
    snapshot!(scratch.run(["import", "list.csv", "--text", "Hi", "--expires", "2020-01-01"]), @r"
    exit 2
    ----- stderr
    error: `--expires` 2020-01-01 00:00 UTC is in the past
    hint: nothing would be sent
    ");
    std::fs::create_dir(scratch.path("out")).expect("a folder");
    snapshot!(scratch.run(["import", "list.csv", "--text", "Hi", "--rejects", "out"]), @r"
    exit 2
    ----- stderr
    error: `--rejects` names a folder, `out`
    hint: name a file in it: `--rejects out/rejects.csv`
    ");
    assert!(!scratch.path("out-2").exists());
    assert!(!scratch.path("list.rejects.csv").exists());
    assert!(!scratch.path("smsq.db").exists());
}

#[test]
fn list_without_usable_rows_has_nothing_to_send() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name\nnobody,Ann\n");
    snapshot!(scratch.run(["import", "list.csv", "--text", "Hi"]), @r"
    exit 1
    ----- stdout
    list.csv into campaign `list-3639ef`
      rows        1
      accepted    0
      duplicates  0
      suppressed  0
      rejected    1 (1 not a phone number)
      segments    0 (0 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    warning: `list.csv`: none of its rows can be used
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign list-3639ef --text Hi`
    ");
}

#[test]
fn dry_run_shows_messages_and_writes_nothing() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write_cellar("http://127.0.0.1:9");
    let line = ["import", "list.csv", "--text", "Hi {{ name }} 你", "--dry-run"];
    let rate = [("SMSQ__PROVIDERS__CELLAR__RATE", "2/min")];
    snapshot!(scratch.run_with(line, &rate), @r"
    exit 0
    ----- stdout
    list.csv into campaign `list-c28009`
      list        CSV in UTF-8, `,` between the fields, header in line 1
      phone       `phone`
      text        with `name`
      rows        6
      would send  4
      duplicates  1 (line 7 repeats line 2)
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    4 (0 messages in GSM-7, 4 in UCS-2)
      countries   GB +44: 2, US +1: 2
      sending     about 2m at 2/min
      expensive   `你` (U+4F60) makes 4 messages UCS-2

      line 2 to +447400123456: 1 × UCS-2
        Hi Ann 你

      line 3 to +447400123457: 1 × UCS-2
        Hi Bob 你

      line 4 to +15005552000: 1 × UCS-2
        Hi Carla 你

      line 5 to +15005553000: 1 × UCS-2
        Hi Dan 你

      line 6 rejected: `1.38E10` is a number in scientific notation, its last digits may be lost: format the column as text where the file came from, and export it again
    ----- stderr
    dry run: nothing was written
    ");
    assert!(!scratch.path("smsq.db").exists());
    assert!(!scratch.path("list.rejects.csv").exists());
}
