//! The command line: help, usage errors, and commands that never create a database.

use crate::support::{Scratch, snapshot};

#[test]
fn help_lists_commands_and_examples() {
    let ran = Scratch::new().run(["--help"]);
    snapshot!(ran, @r#"
    exit 0
    ----- stdout
    Sends a campaign of text messages from a list, through any SMS HTTP API: loses no message, sends
    none twice, respects rate limits, and reports who was not reached and why

    Usage: smsq [OPTIONS] <COMMAND>

    Commands:
      run          Import a list, send it and print the report
      import       Put the messages of a list into the queue; sends nothing
      schedule     Import a query again and again, at times that a cron expression says
      send         Send what is queued until nothing is left to do
      status       Show how many messages are queued, sent, failed and unknown, by campaign
      receipts     Fetch delivery receipts: what became of the messages that were sent
      report       Show how many messages arrived, and who was not reached and why
      retry        Put failed messages (or, with --unknown, the unknown ones) back into the queue
      settle       Record what became of unknown messages, after you have looked them up at the provider
      set          Change a campaign's limit, budget, priority, provider, sender or window, or switch a
                   sender off; running workers see it within seconds
      pause        Pause a campaign: its messages wait until `resume`; requests in flight are still
                   settled
      resume       Continue a paused, stopped or cancelled campaign; messages that were cancelled stay
                   cancelled
      approve      Approve what waits in a campaign for a second person, or reject it
      cancel       Cancel a campaign, without asking: what was not sent will not be, and can be imported
                   again
      suppress     Manage the phones that no campaign sends to
      purge        Delete old messages, empty campaigns or one person's messages; the counts stay
      providers    List, show or test providers, or end a provider's wait
      hooks        Show hooks, test one, and deliver events again
      init         Write a short smsq.toml to start from, or print all settings; never overwrites a file
      check        Check configuration, database and providers, and that no message is lost; sends
                   nothing
      serve        Run a server: a page to watch, an API for messages, receipts by webhook, metrics
      sandbox      Run a practice gateway: it accepts messages over HTTP, and nothing leaves this
                   machine
      prove        Prove on your database that nothing is lost or sent twice and that limits hold,
                   whatever fails
      completions  Print the completion script for a shell
      man          Print the manual pages of all commands, or write them to files
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
          --config <FILE>    The configuration file [default: `$SMSQ_CONFIG`, `./smsq.toml`, or
                             `smsq/smsq.toml` in the user's config folder]
          --database <URL>   The database, such as `sqlite://smsq.db` [default: setting `database.url`]
          --format <FORMAT>  How data is printed: text or json; for `report` also csv or html [default:
                             text]
      -v, --verbose...       Print more: each message (-v), internal events (-vv)
      -q, --quiet            Suppress progress and informational messages

    Examples:
      smsq run --practice list.csv --text Hi           try it on this machine; no phone gets a message
      smsq init                                        write smsq.toml, to describe your provider
      smsq import list.csv --text "Hi {{ name }}" --dry-run
      smsq send --rate 50/s
      smsq report --failed --format csv --output failed.csv

    Exit status: 0 done; 1 done, but some messages failed or are unknown, or no row of a list could be
    used; 2 could not run; 3 stopped before the end, fix the cause and `send` again; 130 and 143 stopped
    by a signal.
    "#);
}

#[test]
fn every_command_has_help_with_an_example() {
    let scratch = Scratch::new();
    for command in [
        "run",
        "import",
        "send",
        "status",
        "report",
        "retry",
        "settle",
        "set",
        "pause",
        "resume",
        "cancel",
        "suppress",
        "providers",
        "hooks",
        "init",
        "check",
        "sandbox",
        "completions",
    ] {
        let ran = scratch.run([command, "--help"]).assert_code(0);
        assert!(ran.stdout().contains("Example"), "{ran}");
    }
}

#[test]
fn missing_command_prints_help_and_exits_2() {
    let ran = Scratch::new().run([]).assert_code(2);
    assert!(ran.stderr().contains("Usage: smsq"), "{ran}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one snapshot per error")]
fn usage_errors_exit_2_and_suggest_a_fix() {
    let scratch = Scratch::new();
    snapshot!(scratch.run(["snd"]), @r"
    exit 2
    ----- stderr
    error: unrecognized subcommand 'snd'

      tip: some similar subcommands exist: 'sandbox', 'send'

    Usage: smsq [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["send", "--rate", "fast"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'fast' for '--rate <RATE>': invalid rate `fast`: write it like `100/s`, `300/min`, `20000/day` or `1/10s`

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["send", "--concurrency", "0"]), @r"
    exit 2
    ----- stderr
    error: invalid value '0' for '--concurrency <N>': 0 is not in 1..=4096

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["send", "--limit", "0"]), @r"
    exit 2
    ----- stderr
    error: invalid value '0' for '--limit <N>': must be 1 or more

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["send", "--on-unknown", "drop"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'drop' for '--on-unknown <ACTION>'
      [possible values: hold, resend]

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import"]), @r"
    exit 2
    ----- stderr
    error: the following required arguments were not provided:
      <FILE>...

    Usage: smsq import <FILE>...

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import", "l.csv", "--text", "a", "--template", "b"]), @r"
    exit 2
    ----- stderr
    error: the argument '--text <TEXT>' cannot be used with '--template <FILE>'

    Usage: smsq import --text <TEXT> <FILE>...

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import", "l.csv", "--region", "Moon"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'Moon' for '--region <REGION>': invalid region `Moon`: use a two-letter country code such as `CN`, `US` or `GB`

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import", "l.csv", "--at", "tomorrow"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'tomorrow' for '--at <TIME>': use a time such as `[DATE]`, `2026-12-24 09:00` (this machine's time zone) or `+2h`

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import", "l.csv", "--column", "phone"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'phone' for '--column <NAME=COLUMN>': write it as `NAME=COLUMN`, such as `phone=手机号`

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["import", "l.csv", "--campaign", " "]), @r"
    exit 2
    ----- stderr
    error: invalid value ' ' for '--campaign <NAME>': the name is empty

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["settle", "--unknown", "sent"]), @r"
    exit 2
    ----- stderr
    error: the following required arguments were not provided:
      --campaign <NAME>

    Usage: smsq settle --unknown <OUTCOME> --campaign <NAME>

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["set", "--campaign", "c"]), @r"
    exit 2
    ----- stderr
    error: the following required arguments were not provided:
      <--window <HOURS>|--days <DAYS>|--timezone <ZONE>|--fallback-timezone <ZONE>|--sender <SENDER> <on|off>|--rate <RATE>|--budget <AMOUNT>|--priority <N>|--provider <NAME>|--from <SENDER>>

    Usage: smsq set <--window <HOURS>|--days <DAYS>|--timezone <ZONE>|--fallback-timezone <ZONE>|--sender <SENDER> <on|off>|--rate <RATE>|--budget <AMOUNT>|--priority <N>|--provider <NAME>|--from <SENDER>> <NAME|--campaign <NAME>|--sender <SENDER> <on|off>>

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["retry", "--class", "sad"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'sad' for '--class <CLASS>'
      [possible values: recipient, content, opted_out, account, throttle, cap, unavailable, unknown, expired, cancelled, suppressed, settled]

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["status", "--format", "csv"]), @r"
    exit 2
    ----- stderr
    error: `--format csv` and `--format html` are for `smsq report`; other commands print `text` or `json`

    Usage: smsq [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["status", "-q", "-v"]), @r"
    exit 2
    ----- stderr
    error: the argument '--quiet' cannot be used with '--verbose...'

    Usage: smsq status --quiet

    For more information, try '--help'.
    ");
    snapshot!(scratch.run(["sandbox", "--listen", "nowhere"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'nowhere' for '--listen <ADDRESS>': invalid socket address syntax

    For more information, try '--help'.
    ");
    scratch.write("faults.toml", "unavailable = 'some'\n");
    snapshot!(scratch.run(["sandbox", "--faults", "faults.toml"]), @r"
    exit 2
    ----- stderr
    error: faults.toml:1: `unavailable`: invalid fault rate `some`: write it like `5%` or `every 20`
    ");
}

#[test]
fn commands_never_create_a_database_to_read() {
    let scratch = Scratch::new();
    for command in [
        vec!["status"],
        vec!["report"],
        vec!["send"],
        vec!["retry"],
        vec!["pause", "--campaign", "c"],
        vec!["suppress", "list"],
    ] {
        let ran = scratch.run(command).assert_code(2);
        assert!(ran.stderr().contains("hint: "), "{ran}");
    }
    assert!(!scratch.path("smsq.db").exists());
    snapshot!(scratch.run(["status"]), @r"
    exit 2
    ----- stderr
    error: cannot open database `smsq.db`: it does not exist
    hint: `smsq import` creates it; check `--database` and the current folder
    ");
}

#[test]
fn invalid_database_url_or_folder_is_explained() {
    let scratch = Scratch::new();
    snapshot!(scratch.run(["status", "--database", "nodb.db"]), @r"
    exit 2
    ----- stderr
    error: `database`: invalid database URL: write a file as `sqlite://smsq.db`
    ");
    let add = ["suppress", "add", "+447400123456"];
    let line = [&add[..], &["--database", "sqlite://no/smsq.db"]].concat();
    snapshot!(scratch.run(line), @r"
    exit 2
    ----- stderr
    error: cannot open database `no/smsq.db`: its folder `no` does not exist
    hint: create the folder first, or check `--database`
    ");
}

#[test]
fn file_that_is_not_a_database_is_left_unchanged() {
    let scratch = Scratch::new();
    let text = "phone,name\n".repeat(100);
    scratch.write("list.csv", &text);
    snapshot!(scratch.run(["status", "--database", "sqlite://list.csv"]), @r"
    exit 2
    ----- stderr
    error: `list.csv`: is not a database, or a damaged one
    hint: check `--database`; if the queue is damaged, restore a copy or run `sqlite3 FILE .recover`, and do not import again before you know who already got the message
    ");
    snapshot!(scratch.run(["status", "--database", "sqlite://."]), @r"
    exit 2
    ----- stderr
    error: `.`: is a folder, not a database
    hint: set `--database` to a new database; smsq never overwrites data of other programs
    ");
    snapshot!(scratch.run(["status", "--database", "postgres://localhost/smsq"]), @r"
    exit 2
    ----- stderr
    error: `postgres:…`: has no user: write it like `user@host/database`
    ");
    let unreachable = "mysql://me:hunter2@127.0.0.1:1/smsq";
    snapshot!(scratch.run(["status", "--database", unreachable]), @r"
    exit 2
    ----- stderr
    warning: the password in `--database` is visible to other users of this machine; use SMSQ__DATABASE__PASSWORD or `database.password_file`
    error: `mysql://me@127.0.0.1:[PORT]/smsq`: Connection refused (os error 111)
    hint: check that the server is running, and its host and port
    ");
    snapshot!(scratch.run(["status", "--database", "oracle://me@host/smsq"]), @r"
    exit 2
    ----- stderr
    error: `oracle:…`: unknown kind of database: use `sqlite://PATH`, `postgres://user@host/database` or `mysql://user@host/database`
    ");
    assert_eq!(scratch.read("list.csv"), text);
}

#[test]
fn password_in_redis_url_is_warned_of_and_never_printed() {
    let url = "redis://me:hunter2@127.0.0.1:1/0";
    let ran = Scratch::new().run(["import", url, "--list", "tasks", "--text", "a"]).assert_code(2);
    let warning = "warning: the password in the redis:// url is visible to other users of this machine; \
                   use SMSQ__REDIS__PASSWORD or `redis.password`\n";
    assert!(ran.stderr().starts_with(warning), "{ran}");
    assert!(!ran.to_string().contains("hunter2"), "{ran}");
}

#[test]
fn errors_are_json_objects_with_format_json() {
    let scratch = Scratch::new();
    scratch.write("bad.toml", "x = 1\n").write("no.db", &"phone\n".repeat(200));
    for (line, message, hint) in [
        (
            "check --format json --config bad.toml",
            "bad.toml:1: unknown setting `x`",
            "`smsq init --reference`",
        ),
        ("check --format json --database sqlite://no.db", "`no.db`: is not a database", ""),
        (
            "status --format json",
            "cannot open database `smsq.db`: it does not exist",
            "`smsq import` creates it",
        ),
        ("--format=json snd", "unrecognized subcommand 'snd'", "'send'"),
        ("send --rate fast --format json", "invalid value 'fast' for '--rate <RATE>'", "--help"),
        ("--format json", "missing command", "--help"),
    ] {
        let ran = scratch.run(line.split(' ')).assert_code(2);
        let error = &ran.json()["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        assert!(text("message").starts_with(message), "{ran}");
        assert!(text("hint").contains(hint), "{ran}");
    }
}

#[test]
fn help_explains_one_command() {
    let ran = Scratch::new().run(["help", "send"]).assert_code(0);
    assert!(ran.stdout().contains("smsq send --follow"), "{ran}");
}

#[test]
fn conflicting_flags_are_rejected() {
    let scratch = Scratch::new();
    for line in ["send --follow --no-wait", "retry --unknown --class recipient", "report --force"] {
        let ran = scratch.run(line.split(' ')).assert_code(2);
        assert!(ran.stderr().contains("Usage: smsq"), "{ran}");
    }
}

#[test]
fn send_with_a_list_points_to_run() {
    snapshot!(Scratch::new().run(["send", "list.csv"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'list.csv' for '[FILE]': `send` sends what is queued and takes no file; did you mean `smsq run list.csv`?

    For more information, try '--help'.
    ");
}

#[test]
fn completions_work_for_every_shell_without_configuration() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "nonsense");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = scratch.run(["completions", shell]).assert_code(0);
        assert!(ran.stdout().contains("smsq"), "{ran}");
    }
}
