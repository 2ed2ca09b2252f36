//! Fuzzes the parsers of short texts: phones, limits, windows, times, templates, URLs, posted messages and others. What
//! is parsed is printed as a text that parses to the same value, and errors are short.

#![no_main]

mod samples;

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use samples::{check_params, check_shown, lossy};
use smsq_import::{Encoding, RejectLimit, Unique, When};
use smsq_message::age::Age;
use smsq_message::phone::{Dialling, Numbers, Phone, Region, mask, may_be_written_as};
use smsq_message::rate::{Rate, Rates};
use smsq_message::receipt::ReceiptState;
use smsq_message::sms::{Class, Timestamp};
use smsq_message::text::template::Template;
use smsq_message::text::{self, content, segments, smart, spreadsheet};
use smsq_message::window::{Days, Hours, Recipient, SendWindow, Zone};
use smsq_operations::{HoursChoice, ZoneChoice};
use smsq_serve::{AccessToken, Role};

/// A parser of what others write.
struct Case {
    samples: &'static [&'static [u8]],
    /// Panics where a promise is broken.
    check: fn(&[u8]),
}

const CASES: [Case; 20] = [
    Case {
        samples: &[
            b"a+447400123456",
            b"b07400 123456 ext. 12",
            b"c13800138000.0",
            b"dtel:+49 (0)151/23456789",
            b"e1.38E+10",
            b"f\xef\xbc\x8b\xef\xbc\x98\xef\xbc\x96 138 0013 8000",
            b"g\xd9\xa0\xd9\xa1\xe5\x88\x86\xe6\x9c\xba",
            b"h2020-01-31T10:00",
            b"i+5491123456789;\xd0\xb4\xd0\xbe\xd0\xb1 7",
        ],
        check: phone,
    },
    Case {
        samples: &[b"100/s", b"300/min,20_000 / day", b"1/10s,5/2hours", b"4294967295/31d"],
        check: rate,
    },
    Case {
        samples: &[
            b"09:00-20:00 mon-fri Asia/Shanghai",
            b"9-24:00 daily column UTC",
            b"0:30-17:45 fri-mon,wed recipient America/New_York",
            b"2-3 sun Europe/Berlin",
        ],
        check: window,
    },
    Case {
        samples: &[b"9-20", b" 9:30 \xe2\x80\x93 17:45 ", b"Sat, Sunday", b"mon-fri,sun", b"none", b"recipient"],
        check: parts_of_window,
    },
    Case {
        samples: &[b"2026-12-24T09:00:00+01:00", b"2026-12-24 09:00", b"+2h 30m", b"+1y", b"+P1DT2H"],
        check: when,
    },
    Case {
        samples: &[b"90d", b"6mo", b"1y 2w", b"-3y", b"P9999Y"],
        check: age,
    },
    Case {
        samples: &[
            b"Hi {{ name }}, your code is {{ code | default(\"-\") }}",
            b"{% if name is defined %}Dear {{ name|title }}{% else %}Hi{% endif %} {# c #}",
            b"{% for x in city|list %}{{ x|upper ~ loop.index * 2 }}{% endfor %}{% set y = name|replace('a','b') %}{{ y[:3] }}",
            b"{{ name|trim|truncate(5)|indent(3)|wordwrap }}{% raw %}{{ }}{% endraw %}{{ (1,2)|join(',') }}",
            b"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(name) }}{{ '%s'|format(name) }}{{ name|length // 2 }}",
        ],
        check: template,
    },
    Case {
        samples: &[
            b"Hello \xe2\x80\x9cAnna\xe2\x80\x9d \xe2\x80\x93 50 \xe2\x82\xac",
            b"=1+1\t\r\n",
            b"'@SUM(A1)",
            b"\xe2\x80\xaeabc\xe2\x80\x8b\x1b[31m",
            b"{\"a\":\"\xc2\x85\",\"b\":[1.0,null]}",
            b"\xf0\x9f\x98\x80\xef\xb8\x8f\xe2\x80\x8d",
        ],
        check: shown_text,
    },
    Case {
        samples: &[
            b"mysql://me:p%40ss@one,two:3307,[::1]:3308/queue?tls=off",
            b"postgres://u:secretword@host/db?tls_ca=/a.pem&sslmode=verify-full&socket=/run/s",
            b"mariadb://a%2Fb@localhost/d%20b?target_session_attrs=primary&password=secretword",
        ],
        check: server_url,
    },
    Case {
        samples: &[
            b"{\"phone\":\"+447400123456\",\"text\":\"Your table is ready\",\"campaign\":\"a\",\"due_at\":\"2026-12-24T09:00:00Z\",\"expires_at\":\"2026-12-25T09:00:00Z\",\"from\":\"x\"}",
            b"{\"phone\":\"07400 123456\",\"template\":\"Hi {{ name }}, {{ code }}\",\"params\":{\"name\":\"Ann\",\"code\":4711,\"l\":[1]},\"dedupe_key\":\"k\"}",
            b"{\"phone\":\"1\",\"text\":null,\"template\":\"\\u0041\\ud83d\\ude00\"}",
        ],
        check: posted_message,
    },
    Case {
        samples: &[
            b"shop:send:0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF",
            b"a.b-c_d:admin:00",
        ],
        check: token,
    },
    Case {
        samples: &[b"GB", b"cn", b"001", b"gb18030", b"utf-16", b"shift-jis", b"cp874", b"5%", b"100", b"0.5 %"],
        check: word,
    },
    Case {
        samples: &[b"phone", b"none", b"name, city ,", b"Fran\xc3\xa7ais 1", b"\xe6\x89\x8b\xe6\x9c\xba\xe5\x8f\xb7=a", b";", b"tab", b"\\t"],
        check: option,
    },
    Case {
        samples: &[
            b"currency = 'EUR'\nother = 0.075\n'+44' = 0.04\n1 = '0.000001'",
            b"447 = 18446744073709\n86 = 1e3\n7 = 0.1",
        ],
        check: prices,
    },
    Case {
        samples: &[b"STOP", b"\xe5\x9b\x9eT\xe9\x80\x80\xe8\xae\xa2", b" Stop all. ", b"\xef\xbc\xb4\xef\xbc\xa4"],
        check: reply,
    },
    Case {
        samples: &[
            b"{\"phone\":\"+447400123456\",\"name\":\"Ann\",\"dedupe_key\":\"k\",\"smsq_id\":\"7\"}",
            b"{\"Mobile\":447400123456,\"name\":null,\"x\":[{}]}",
            b"{\"\xe6\x89\x8b\xe6\x9c\xba\xe5\x8f\xb7\":\"13800138000\",\"name\":\"a\\u0000\",\"name \":\"b\"}",
        ],
        check: entry,
    },
    Case {
        samples: &[
            b"{\"event\":\"arrived\",\"at\":1,\"to\":\"+447400123456\",\"reference\":null}\n{\"event\":\"accepted\",\"at\":2,\"to\":\"+4\",\"reference\":\"r\"}\n",
            b"{\"event\":\"stalled\",\"at\":18446744073709551615,\"micros\":1}\r\n{\"event\":",
        ],
        check: gateway_log,
    },
    Case {
        samples: &[
            b"{\"written_at\":77}\n{\"id\":1,\"claim\":3,\"provider\":\"p\",\"result\":\"sent\",\"message_id\":\"SM1\",\"segments\":2,\"price\":null,\"awaits_receipt\":true}",
            b"{\"written_at\":-5}\n{\"id\":2,\"claim\":3,\"provider\":\"p\",\"result\":\"ready\",\"due_at\":5,\"failure\":{\"class\":\"unavailable\",\"code\":null,\"reason\":\"+447400123456 busy\"},\"counted\":true,\"in_doubt\":false}\n",
            b"{\"written_at\":1}\n{\"id\":1,\"claim\":1,\"provider\":\"\",\"result\":\"refunded\"}\n{\"id\":3,\"claim\":1,\"provider\":\"\",\"result\":\"unknown\",\"class\":\"unknown\",\"code\":\"9\",\"reason\":\"late 12345678\"}",
        ],
        check: journal,
    },
    Case {
        samples: &[
            b"\x10\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x10\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00",
            b"\x6a{\"id\":9,\"claim\":3,\"provider\":\"p\",\"result\":\"sent\",\"message_id\":\"SM1\",\"segments\":2,\"price\":null,\"awaits_receipt\":true}\x10\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00",
        ],
        check: marks,
    },
    Case {
        samples: &[b"recipient", b"opted_out", b"no_report", b"unlisted", b"operate", b"throttle"],
        check: state,
    },
];

fuzz_target!(|data: &[u8]| {
    if let [case, text @ ..] = data {
        (CASES[usize::from(*case) % CASES.len()].check)(text);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let rows = CASES.each_ref().map(|case| case.samples);
    samples::mutate(&rows, &mut data[..max_size], size, seed)
});

/// What is parsed is printed as a text that parses to the same.
fn parsed<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) => assert_eq!(again, value, "{text:?} is printed as {printed:?}"),
        Err(error) => panic!("{text:?} is printed as {printed:?}: {error}"),
    }
    Some(value)
}

const REGIONS: [&str; 8] = ["", "GB", "CN", "US", "DE", "IT", "AR", "BR"];
const NUMBERS: [Numbers; 3] = [Numbers::Detect, Numbers::National, Numbers::International];

fn diallings() -> impl Iterator<Item = Dialling> {
    REGIONS
        .iter()
        .flat_map(|region| NUMBERS.map(|numbers| Dialling { region: region.parse().ok(), numbers }))
}

/// The most digits in a row.
fn longest_number(text: &str) -> usize {
    let runs = text.split(|c: char| !c.is_ascii_digit());
    runs.map(str::len).max().unwrap_or(0)
}

fn phone(text: &[u8]) {
    let [dialling, text @ ..] = text else { return };
    let text = lossy(text);
    let index = usize::from(*dialling) % (REGIONS.len() * NUMBERS.len());
    let dialling = diallings().nth(index).expect("a dialling");
    match Phone::parse(&text, dialling) {
        Ok(phone) => {
            let written = phone.as_str();
            assert_eq!(Phone::stored(written).as_ref(), Some(&phone));
            let other = diallings().nth((index + 5) % 24).expect("a dialling");
            for dialling in [other, Dialling::default()] {
                assert_eq!(Phone::parse(written, dialling).as_ref(), Ok(&phone), "{text:?}");
            }
            assert!(may_be_written_as(written, written));
            let shown = phone.to_string();
            assert!(shown.contains("****") && shown.len() <= written.len(), "{shown}");
        }
        Err(error) => {
            check_shown(&error.to_string(), 400);
            check_shown(&error.plain(), 300);
            assert!(longest_number(&error.to_string()) < 9, "{error}");
        }
    }
    let masked = mask(&text);
    assert!(masked.contains("****"));
    assert!(longest_number(&masked) < longest_number(&text).max(11));
}

fn rate(text: &[u8]) {
    let text = lossy(text);
    if let Some(rate) = parsed::<Rate>(&text) {
        assert!(rate.window >= Duration::from_secs(1) && rate.window <= Rate::MAX_WINDOW);
        assert!(rate.per_second() > 0.0);
    }
    if let Some(rates) = parsed::<Rates>(&text) {
        assert!(rates.0.len() <= 16);
    }
}

fn window(text: &[u8]) {
    let text = lossy(text);
    let Some(window) = parsed::<SendWindow>(&text) else {
        return;
    };
    let bytes =
        text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    // Any instant until the year 2106.
    let now = Timestamp::from_millis(i64::try_from(bytes % (1 << 32)).expect("an instant") * 1_000);
    let recipient =
        Recipient { phone: "+447400123456", params: r#"{"timezone":"Australia/Lord_Howe"}"# };
    let spans = [window.for_all(now), Some(window.for_one(recipient, now))];
    for span in spans.into_iter().flatten() {
        assert!(span.opens_at <= span.closes_at, "{span:?}");
        assert!(span.closes_at > now, "{span:?}, {now:?}");
    }
    let until = now.plus(Duration::from_secs(86_400 * 10));
    let open = window.open_between(now, until);
    assert!(open <= until.since(now));
    let end = window.end_of(now, open);
    assert!(open.is_zero() || end <= until, "{end} after {until}");
    assert!(window.end_of(now, open + Duration::from_secs(1)) > now);
    check_shown(&window.describe(), 200);
    check_shown(&window.format_local(now), 100);
}

fn parts_of_window(text: &[u8]) {
    let text = lossy(text);
    parsed::<Hours>(&text);
    parsed::<Days>(&text);
    // The closest of all names is looked for where none fits, which is slow.
    if text.len() < 4 || text.contains('/') {
        parsed::<Zone>(&text);
        let _ = text.parse::<ZoneChoice>();
    }
    let _ = text.parse::<HoursChoice>();
}

fn when(text: &[u8]) {
    let text = lossy(text);
    let start = Timestamp::from_millis(1_700_000_000_000);
    match text.parse::<When>() {
        Ok(When::In(span)) => {
            let after = When::In(span).after(start);
            assert!(after >= start);
            check_shown(&text::duration(span), 100);
        }
        Ok(When::At(at)) => {
            let printed = at.to_string();
            let again: When = printed.parse().expect("it is printed as RFC 3339");
            let again = again.after(start).as_millis();
            assert!(at.as_millis().abs_diff(again) <= 1_000, "{text:?}: {printed}");
            check_shown(&smsq_message::window::local_and_utc(at), 100);
        }
        Err(_) => {}
    }
}

fn age(text: &[u8]) {
    let text = lossy(text);
    if let Ok(age) = text.parse::<Age>() {
        let now = Timestamp::from_millis(1_900_000_000_000);
        let before = age.before(now);
        assert!(now.since(before) >= Duration::from_secs(86_000), "{text:?}");
    }
}

fn template(source: &[u8]) {
    let source = lossy(source);
    match Template::parse("--text", &source) {
        Ok(template) => {
            let value = "4711 geheim";
            for name in template.placeholders() {
                assert!(!name.contains('.'));
            }
            for is_given in [true, false] {
                match template.render(|_| is_given.then_some(value)) {
                    Ok(text) => {
                        assert!(text.len() <= smsq_message::text::template::MAX_SOURCE);
                        if let Some(constant) = template.constant() {
                            assert_eq!(text, constant);
                        }
                    }
                    Err(error) => {
                        let error = error.to_string();
                        check_shown(&error, 1_000);
                        assert!(!error.contains("geheim") || source.contains("geheim"), "{error}");
                    }
                }
            }
            let columns = ["name", "code", "手机号"];
            let found = template.literal_placeholders(columns.into_iter());
            assert!(found.len() <= columns.len());
            let again = Template::parse("--text", template.source()).expect("its own source");
            assert_eq!(again.placeholders(), template.placeholders());
        }
        Err(error) => check_shown(&error, 1_000),
    }
}

fn shown_text(bytes: &[u8]) {
    let guarded = spreadsheet::guarded(bytes);
    let added = usize::from(spreadsheet::is_guarded(&guarded));
    assert_eq!(&guarded[added..], bytes);
    let text = lossy(bytes);
    let line = text::printable_line(&text);
    assert!(line.chars().all(text::is_printable), "{line:?}");
    assert_eq!(text::printable_line(&line), line);
    let lines = text::printable(&text);
    assert!(lines.chars().all(|c| text::is_printable(c) || c == '\n' || c == '\t'));
    check_shown(&text::listed([&*text]), 500);
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) {
        let printed = text::printable_json(&text);
        let again: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(again, json);
    }
    let before = segments::count(&text);
    assert!(before.count >= 1);
    let cheaper = smart::cheaper(&text);
    assert!(segments::count(&cheaper).count <= before.count);
    assert_eq!(smart::cheaper(&cheaper), cheaper);
    if content::check(&text).is_ok() {
        assert!(content::check(&cheaper).is_ok(), "{text:?} becomes {cheaper:?}");
        let parts = i32::try_from(text.chars().count()).expect("a short text");
        assert!(before.count <= parts.max(1));
    }
}

fn server_url(url: &[u8]) {
    let url = lossy(url);
    match smsq_store::fuzz_server_url(&url) {
        Ok((shown, _)) => {
            check_shown(&shown, 4 * url.len() + 64);
            let has_it_once = url.matches("secretword").count() == 1;
            let is_password = has_it_once && url.contains(":secretword@");
            assert!(!is_password || !shown.contains("secretword"));
            let (again, none) = smsq_store::fuzz_server_url(&shown).expect("it is shown as a URL");
            assert_eq!(again, shown, "{url:?}");
            assert!(none.is_none(), "{url:?} is shown as {shown:?}");
        }
        Err(error) => {
            let as_password = [":secretword@", "?password=secretword", "&password=secretword"];
            let has_it_as_password = as_password.iter().any(|part| url.contains(part));
            let has_it_once = url.matches("secretword").count() == 1;
            assert!(
                !(has_it_as_password && has_it_once) || !error.contains("secretword"),
                "{url:?}: {error}"
            );
        }
    }
}

fn posted_message(json: &[u8]) {
    let region = "GB".parse::<Region>().ok();
    match smsq_serve::fuzz_posted(json, region) {
        Ok((sms, fingerprint)) => {
            assert_eq!(Phone::stored(&sms.phone).map(Phone::into_string), Some(sms.phone.clone()));
            assert_eq!(content::check(&sms.content), Ok(()));
            assert!((1..=50).contains(&sms.segments));
            check_params(&sms.params);
            let wide = [b" ", json, b"\n"].concat();
            let (_, again) = smsq_serve::fuzz_posted(&wide, region).expect("the same message");
            assert_eq!(again, fingerprint);
        }
        Err(error) => {
            assert!(error.len() <= 1_000, "{error}");
            assert!(!error.contains(['\n', '\0', '\u{1b}']), "{error:?}");
        }
    }
}

fn token(text: &[u8]) {
    let text = lossy(text);
    if let Some(token) = parsed::<AccessToken>(&text) {
        check_shown(&token.to_string(), 300);
    }
}

fn word(text: &[u8]) {
    let text = lossy(text);
    parsed::<Region>(&text);
    parsed::<Encoding>(&text);
    if let Some(limit) = parsed::<RejectLimit>(&text) {
        assert!(limit.allows(0, 10));
    }
}

fn option(text: &[u8]) {
    let text = lossy(text);
    let unique = text.parse::<Unique>().expect("any text");
    let printed = unique.to_string();
    assert_eq!(printed.parse::<Unique>(), Ok(unique), "{printed}");
    if let Ok(name) = smsq_import::campaign_name(&text) {
        check_shown(&name, 400);
        assert_eq!(smsq_import::campaign_name(&name), Ok(name));
    }
    if let Ok((name, value)) = smsq_import::assignment(&text) {
        let again = smsq_import::assignment(&format!("{name}={value}"));
        assert_eq!(again, Ok((name, value)));
    }
    if let Ok(sender) = smsq_import::sender(&text) {
        assert_eq!(smsq_import::sender(&sender), Ok(sender));
    }
    if let Ok(delimiter) = smsq_import::delimiter(&text) {
        assert!(!delimiter.is_ascii_alphanumeric() && ![b'"', b'\n', b'\r'].contains(&delimiter));
    }
    let name = smsq_import::identifier(&text);
    assert_eq!(smsq_import::identifier(&name), name, "{text:?}");
}

fn prices(text: &[u8]) {
    let Ok(table) = lossy(text).parse::<toml::Table>() else {
        return;
    };
    if let Ok(prices) = smsq_message::prices::Prices::from_toml(&table) {
        for phone in ["+447400123456", "+12025550123", "", "+é"] {
            if let Some(price) = prices.of(phone) {
                check_shown(&smsq_message::prices::Prices::exact(price), 40);
                check_shown(&smsq_message::prices::Prices::rounded(price), 40);
                check_shown(&smsq_message::prices::Prices::estimated(price), 40);
            }
        }
        assert!(prices.longest_prefix() <= text.len());
    }
}

fn reply(text: &[u8]) {
    let text = lossy(text);
    let padded = format!(" {text}. ");
    assert_eq!(smsq_provider::asks_to_stop(&text), smsq_provider::asks_to_stop(&padded));
    let reply = smsq_provider::Reply {
        phone: text.to_string(),
        region: "CN".parse().ok(),
        text: String::new(),
    };
    for phone in reply.phones("GB".parse().ok()) {
        assert!(Phone::stored(phone.as_str()).is_some());
    }
}

fn entry(json: &[u8]) {
    let options = smsq_import::Options {
        text: smsq_import::TextSource::Text("Hi {{ name }}".to_owned()),
        dialling: Dialling::from("GB".parse::<Region>().ok()),
        ..Default::default()
    };
    match smsq_import::consumer::fuzz_entry(options, json) {
        Ok(sms) => {
            assert!(Phone::stored(&sms.phone).is_some());
            assert_eq!(content::check(&sms.content), Ok(()));
            check_params(&sms.params);
        }
        Err(rejection) => check_shown(&rejection.reason, 2_000),
    }
}

fn gateway_log(log: &[u8]) {
    let at = log.first().map_or(0, |byte| usize::from(*byte) % log.len());
    let (first, second) = log.split_at(at);
    let whole = smsq_prove::fuzz_gateway_log([log, b""]);
    let parts = smsq_prove::fuzz_gateway_log([first, second]);
    match (whole, parts) {
        (Ok(whole), Ok(parts)) => assert_eq!(whole, parts),
        (Err(error), Err(_)) => check_shown(&error.to_string(), 1_000),
        (whole, parts) => panic!("{whole:?}, in parts {parts:?}"),
    }
}

fn journal(file: &[u8]) {
    let Ok((written, reasons)) = smsq_sender::fuzz_journal(file) else {
        return;
    };
    let lines = file.split(|byte| *byte == b'\n');
    let lines = lines.clone().count() - usize::from(file.ends_with(b"\n"));
    assert_eq!(written.split(|byte| *byte == b'\n').count(), lines);
    assert!(reasons.iter().all(|reason| longest_number(reason) < 7), "{reasons:?}");
    let (again, _) = smsq_sender::fuzz_journal(&written).expect("what was written");
    assert_eq!(again, written);
}

/// The contents of slots, each after its length. A single damaged byte is noticed, or changes nothing.
fn marks(slots: &[u8]) {
    let mut contents = Vec::new();
    let mut rest = slots;
    while let [length, more @ ..] = rest {
        let (content, more) = more.split_at(usize::from(*length).min(more.len()));
        contents.push(content);
        rest = more;
    }
    contents.truncate(4);
    let Some(claims) = smsq_sender::fuzz_marks(&contents, |_| {}) else {
        return;
    };
    let used = contents.iter().filter(|content| !content.is_empty()).count();
    assert_eq!(claims.len(), used);
    let seed = slots
        .iter()
        .fold(1_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let damaged = smsq_sender::fuzz_marks(&contents, |bytes| {
        let at = seed % bytes.len();
        bytes[at] ^= 1 << (seed % 8);
    });
    assert!(damaged.is_none_or(|damaged| damaged == claims));
    let cut = smsq_sender::fuzz_marks(&contents, |bytes| bytes.truncate(seed % bytes.len()));
    assert!(cut.is_none());
}

fn state(text: &[u8]) {
    let text = lossy(text);
    parsed::<Class>(&text);
    parsed::<ReceiptState>(&text);
    if let Ok(role) = text.parse::<Role>() {
        assert_eq!(role.as_str(), text);
    }
}
