//! Every construct of texts that the manual calls available, with the real program: what is on the wire is the value,
//! in texts and in provider sections.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::{Scratch, repository};

const LIST: &str = "\
phone,name,city,items,price,vip,First name
+447400123456,ann,Rome,\"tea,cake\",2.5,yes,Ann
";

/// What the manual shows, a text with it, and what the text is for the row of [`LIST`]. `§` stands before columns.
const CONSTRUCTS: &[(&str, &str, &str)] = &[
    ("`Hi {{ name }}`", "Hi {{ §name }}", "Hi ann"),
    // Parts of a value
    ("{{ name[:2] }}", "Hi {{ §name[:2] }}!", "Hi an!"),
    ("{{ name[1:] }}", "{{ §name[1:] }}", "nn"),
    ("{{ name[-2:] }}", "{{ §name[-2:] }}", "nn"),
    ("{{ name[-2:] }}", "{{ §name[1:2] }}", "n"),
    ("{{ name[:2] }}", "{{ §name[:§price | float | int] }}", "an"),
    ("{{ name[:2] }}", "{{ §name[§city | length - 3:] }}", "nn"),
    ("{{ name[:2] }}", "{{ §name[:2][1:] }}", "n"),
    ("{{ name[:2] }}", "{{ §name[:2] | upper ~ §city[2:] }}", "ANme"),
    ("{{ name[:2] }}", "{{ [§name[:1], §city[:1]] | join('') }}", "aR"),
    ("{{ name[0] }}", "{{ §name[0] }}", "a"),
    ("{{ (name ~ city)[:9] }}", "{{ (§name ~ §city)[2:5] }}", "nRo"),
    ("{{ (name ~ city)[:9] }}", "{{ (§name[0] ~ 'b')[1:] }}", "b"),
    (r#"{{ (name | default("friend"))[:3] }}"#, r#"{{ (§name | default("friend"))[:3] }}"#, "ann"),
    // Conditions
    (
        "{% if vip %}…{% elif city %}…{% else %}…{% endif %}",
        "{% if §vip %}{{ §city[:1] }}{% elif §city %}{{ §name[:1] }}{% else %}{{ §items[:1] }}{% endif %}",
        "R",
    ),
    (
        "{% if vip %}…{% elif city %}…{% else %}…{% endif %}",
        "{% if §vip == 'no' %}{{ §city[:1] }}{% elif §city == 'x' %}x{% else %}{{ §items[:1] }}{% endif %}",
        "t",
    ),
    (
        "{% if city %}to {{ city }}{% endif %}",
        "x{% if §city[:1] == 'R' %} to {{ §name }}{% endif %}",
        "x to ann",
    ),
    (r#"{{ "A" if vip else "B" }}"#, r#"{{ "A" if §vip else "B" }}"#, "A"),
    (r#"{{ "A" if vip else "B" }}"#, r#"{{ "A" if §vip == "no" else §city[:2] }}"#, "Ro"),
    // Comparisons
    ("`==`", "{{ 1 if §name == 'ann' else 2 }}", "1"),
    ("`!=`", "{{ 1 if §name[:1] != 'a' else 2 }}", "2"),
    ("`<`", "{{ 1 if §price | float < 3 else 2 }}", "1"),
    ("`<=`", "{{ 1 if §price | float <= 2 else 2 }}", "2"),
    ("`>`", "{{ 1 if §price | float > 3 else 2 }}", "2"),
    ("`>=`", "{{ 1 if §price | float >= 2.5 else 2 }}", "1"),
    ("`in`", "{{ 1 if 'om' in §city[:3] else 2 }}", "1"),
    ("`not in`", "{{ 1 if 'x' not in §city[1:] else 2 }}", "1"),
    ("`and`", "{{ 1 if §vip and §name[:1] == 'a' else 2 }}", "1"),
    ("`or`", "{{ 1 if §vip == 'no' or §name[:1] == 'a' else 2 }}", "1"),
    ("`not`", "{{ 1 if not §name[:1] == 'a' else 2 }}", "2"),
    // Tests
    ("`is defined`", "{{ 1 if §name is defined else 2 }}", "1"),
    (r#"`is startingwith("A")`"#, r#"{{ 1 if §city[1:] is startingwith("o") else 2 }}"#, "1"),
    (r#"`is startingwith("A")`"#, "{{ 1 if 'an apple' is startingwith §name[:2] else 2 }}", "1"),
    (r#"`is endingwith("n")`"#, r#"{{ 1 if §name is endingwith("n") else 2 }}"#, "1"),
    ("`is divisibleby(2)`", "{{ 1 if §city[:3] | length is divisibleby(2) else 2 }}", "2"),
    // Loops
    (
        r#"{% for item in items | split(",") %}…{% endfor %}"#,
        "{% for item in §items | split(',') %}{{ loop.index }}{{ item[:2] }}{{ §name[:1] }} {% endfor %}.",
        "1tea 2caa .",
    ),
    (
        "with `if` to leave out items",
        "{% for item in §items | split(',') if item[:1] != §items[:1] %}{{ item }}{% else %}x{% endfor %}",
        "cake",
    ),
    (
        r#"{% for item in items \| split(",") %}…{% else %}…{% endfor %}"#,
        "{% for item in §items | split(',') if item == 'x' %}{{ item }}{% else %}{{ §city[:1] }}{% endfor %}",
        "R",
    ),
    (
        "`loop.index`",
        "{% for item in §items[:3] | split('e') %}{{ loop.index ~ item }}{% endfor %}",
        "1t2a",
    ),
    // Texts and numbers
    ("`~` joins texts", "{{ §name ~ ' ' ~ §city[:1] }}", "ann R"),
    ("`+`", "{{ §price | float + 1 }}", "3.5"),
    ("`-`", "{{ §price[:1] | int - 1 }}", "1"),
    ("`*`", "{{ §price | float * 2 }}", "5.0"),
    ("`/`", "{{ §price | float / 2 }}", "1.25"),
    ("`//`", "{{ §price[:1] | int // 2 }}", "1"),
    ("`%`", "{{ §price[2:] | int % 2 }}", "1"),
    ("`**`", "{{ §price[:1] | int ** 3 }}", "8"),
    // Lists
    (
        r#"{% if name in ["Ann", "Bob"] %}"#,
        r#"{% if §name in ["ann", §city[:1]] %}x{% endif %}"#,
        "x",
    ),
    // Other
    (
        "{% raw %}…{% endraw %}",
        "{% raw %}{{ name[:2] }}{% endraw %}{{ §name[:1] }}",
        "{{ name[:2] }}a",
    ),
    ("{# … #}", "{# {{ name[:2] }} #}{{ §name[:1] }}", "a"),
    ("`-%}`", "x {%- if §name[:1] == 'a' -%} y {%- endif -%} z", "xyz"),
    // Filters
    ("`abs`", "{{ §price[2:] | int | abs }}", "5"),
    ("`capitalize`", "{{ §name[:2] | capitalize }}", "An"),
    ("`count`", "{{ §city[1:] | count }}", "3"),
    ("`default`", "{{ §name | default(§city[:1]) }}", "ann"),
    ("`first`", "{{ §items | split(',') | first }}", "tea"),
    ("`float`", "{{ §price[:1] | float }}", "2.0"),
    ("`format`", "{{ '%.2f' | format(§price | float) }}", "2.50"),
    ("`format`", "{{ '%s' | format(§name[:1]) }}", "a"),
    ("`int`", "{{ §price[:1] | int }}", "2"),
    ("`join`", "{{ §items | split(',') | join(§name[:1]) }}", "teaacake"),
    ("`last`", "{{ §items | split(',') | last }}", "cake"),
    ("`length`", "{{ §name[1:] | length }}", "2"),
    ("`lines`", "{{ §name[1:] | lines | first }}", "nn"),
    ("`lower`", "{{ §city[:2] | lower }}", "ro"),
    ("`replace`", "{{ §city | replace('R', §name[:1]) }}", "aome"),
    ("`round`", "{{ (§price | float + 0.2) | round }}", "3.0"),
    ("`split`", "{{ §items | split(§items[3:4]) | last }}", "cake"),
    ("`title`", "{{ §name[:2] | title }}", "An"),
    ("`trim`", "{{ §items | trim(§items[:1]) }}", "ea,cake"),
    ("`upper`", "{{ §name[:2] | upper }}", "AN"),
];

/// The manual's section about texts, with lines joined.
fn manual() -> String {
    let manual = std::fs::read_to_string(repository("docs/importing.md")).expect("the manual");
    let section = manual.split("\n## ").find(|section| section.starts_with("Texts\n"));
    section.expect("the section").replace('\n', " ")
}

#[test]
fn manual_names_every_construct_of_texts() {
    let manual = manual();
    for (shown, text, _) in CONSTRUCTS {
        assert!(manual.contains(shown), "{text}: the manual does not have {shown}");
    }
    let (_, filters) = manual.split_once("Available filters: ").expect("filters");
    let (filters, _) = filters.split_once(", as in").expect("an end");
    let filters: BTreeSet<&str> =
        filters.split([',', ' ']).filter(|word| word.starts_with('`')).collect();
    let shown: BTreeSet<&str> = CONSTRUCTS.iter().map(|(shown, ..)| *shown).collect();
    assert_eq!(filters.difference(&shown).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(filters.len() > 15, "{filters:?}");
}

/// Sends the list with the text, and with the same construct in the request of the provider.
fn check(text: &str, expected: &str) {
    let gateway = TimedProvider::start(None, |_, _| Reply::Json(r#"{"id":"1"}"#.to_owned()));
    let scratch = Scratch::new();
    let of_provider = toml::Value::String(text.replace('§', "params."));
    scratch.write("list.csv", LIST).write(
        "smsq.toml",
        &format!(
            "[providers.cellar]\nkind = 'generic'\nurl = '{}/messages'\nmessage_id = '/id'\n\
             json = {{ to = '{{{{ phone[3:] }}}}', text = '{{{{ content }}}}', x = {of_provider} }}\n",
            gateway.url()
        ),
    );
    let of_text = text.replace('§', "");
    let ran = scratch.run(["run", "list.csv", "--text", &of_text, "--yes"]);
    assert_eq!(ran.code(), Some(0), "{text}: {ran}");
    let bodies = gateway.bodies();
    let [body] = bodies.as_slice() else {
        panic!("{text}: {bodies:?}");
    };
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["text"], expected, "in a text: {text}");
    assert_eq!(body["x"], expected, "in a provider section: {text}");
    assert_eq!(body["to"], "7400123456", "{text}");
}

#[test]
fn every_construct_of_the_manual_sends_the_value() {
    std::thread::scope(|scope| {
        for part in CONSTRUCTS.chunks(CONSTRUCTS.len().div_ceil(4)) {
            scope.spawn(move || {
                for (_, text, expected) in part {
                    check(text, expected);
                }
            });
        }
    });
}

#[test]
fn name_in_a_slice_that_is_not_a_column_is_an_error() {
    let gateway = TimedProvider::start(None, |_, _| Reply::Json(r#"{"id":"1"}"#.to_owned()));
    let scratch = Scratch::new();
    scratch.write_cellar(&gateway.url()).write("list.csv", LIST);
    for text in [
        "Hi {{ nam[:2] }}",
        "Hi {% if name %}{{ name }}{% else %}{{ nam[:2] }}{% endif %}",
        "Hi {{ name[:nam | length] }}",
        "Hi {{ name | default(nam[:2]) }}",
    ] {
        for command in ["run", "import"] {
            let ran = scratch.run([command, "list.csv", "--text", text]);
            assert_eq!(ran.code(), Some(2), "{text}: {ran}");
            let error = ran.stderr();
            assert!(
                error.contains("unknown column `nam` in `--text`: `list.csv` does not have it")
                    && error.contains("did you mean `name`?"),
                "{text}: {error}"
            );
        }
    }
    assert!(!scratch.path("smsq.db").exists());
    assert_eq!(gateway.sends(), 0);
}

#[test]
fn part_of_an_empty_value_rejects_the_row() {
    let gateway = TimedProvider::start(None, |_, _| Reply::Json(r#"{"id":"1"}"#.to_owned()));
    let scratch = Scratch::new();
    scratch.write_cellar(&gateway.url()).write(
        "list.csv",
        "phone,name,city\n+447400123456,,Rome\n+447400123457,Ann,\n+447400123458,Bob,Rome\n",
    );
    let text = "Hi {% if city %}{{ name[:2] }}{% else %}{{ name[1:] }}{% endif %}";
    let ran = scratch.run(["run", "list.csv", "--text", text, "--yes"]).assert_code(0);
    assert!(ran.stdout().contains("rejected 1 row (1 missing value)"), "{ran}");
    let sent: BTreeSet<String> = gateway
        .bodies()
        .iter()
        .map(|body| serde_json::from_str::<Value>(body).expect("JSON")["text"].to_string())
        .collect();
    assert_eq!(sent, [r#""Hi Bo""#, r#""Hi nn""#].map(str::to_owned).into());
    let rejects = scratch.read("list.rejects.csv");
    assert!(rejects.contains("+447400123456,,Rome"), "{rejects}");
}
