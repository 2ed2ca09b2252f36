//! The report as one JSON object; its list of failures flows through, one to a line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Alphabets, Cost, Lists, Part, Reason, Report, Standing, columns_of};
use crate::sms::millis;
use crate::store::report::{FailureRecord, FailureState, Outcomes, SentMessage, Totals};
use crate::text::printable_json;

/// A report on one campaign begins with how it stands, one on all with the sums.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    standing: Option<&'a Standing>,
    #[serde(flatten)]
    totals: Option<&'a Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purged_at: Option<String>,
    first_sent_at: Option<String>,
    last_sent_at: Option<String>,
    /// From the first to the last.
    took_ms: Option<i64>,
    /// Messages in a second.
    rate: Option<f64>,
    segments: u64,
    /// Messages that the provider took more than once.
    repeated: u64,
    alphabets: Alphabets,
    cost: Option<&'a Cost>,
    countries: &'a [Part],
    providers: &'a [Part],
    sender: Option<&'a str>,
    text: Option<&'a str>,
    lists: &'a Lists,
    opted_out: u64,
    over_time: Option<OverTime<'a>>,
    by_reason: &'a [Reason],
    #[serde(skip_serializing_if = "Option::is_none")]
    campaigns: Option<&'a [Standing]>,
}

#[derive(Serialize)]
struct OverTime<'a> {
    from: String,
    width_ms: i64,
    spans: &'a [Outcomes],
}

#[derive(Serialize)]
struct SentLine<'a> {
    /// Where the report is on all campaigns.
    #[serde(skip_serializing_if = "Option::is_none")]
    campaign: Option<&'a str>,
    phone: &'a str,
    provider: &'a str,
    message_id: Option<&'a str>,
    segments: Option<i32>,
    price: Option<&'a str>,
    sent_at: String,
    attempts: i32,
    accepted: i32,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Where the report is on all campaigns.
    #[serde(skip_serializing_if = "Option::is_none")]
    campaign: Option<&'a str>,
    phone: &'a str,
    content: &'a str,
    state: FailureState,
    class: &'a str,
    code: Option<&'a str>,
    reason: &'a str,
    attempts: i32,
    last_attempt_at: Option<String>,
    columns: Map<String, Value>,
}

pub(super) struct Writer<'a, W: Write> {
    report: &'a Report,
    out: W,
    separator: &'static str,
}

impl<'a, W: Write> Writer<'a, W> {
    /// `list` is the key of the list.
    pub(super) fn begin(report: &'a Report, list: &str, mut out: W) -> io::Result<Self> {
        let standing = report.standing();
        let head = serde_json::to_string(&Head {
            standing,
            totals: standing.is_none().then_some(&report.totals),
            purged_at: report.purged_at.map(|at| at.to_string()),
            first_sent_at: report.facts.first_at.map(|at| at.to_string()),
            last_sent_at: report.facts.last_at.map(|at| at.to_string()),
            took_ms: report.took().map(millis),
            rate: report.rate().map(|rate| (rate * 1_000.0).round() / 1_000.0),
            segments: report.facts.segments,
            repeated: report.facts.repeated,
            alphabets: report.alphabets,
            cost: report.bill.cost.as_ref(),
            countries: &report.bill.countries,
            providers: &report.bill.providers,
            sender: report.sender.as_deref(),
            text: report.text.as_deref(),
            lists: &report.lists,
            opted_out: report.opted_out,
            over_time: report.history.as_ref().map(|history| OverTime {
                from: history.from.to_string(),
                width_ms: millis(history.width),
                spans: &history.spans,
            }),
            by_reason: &report.by_reason,
            campaigns: standing.is_none().then_some(&report.standings),
        })?;
        // The object stays open for the list that nobody can hold.
        let open = head.strip_suffix('}').unwrap_or(&head);
        out.write_all(printable_json(open).as_bytes())?;
        write!(out, ",\"{list}\":[")?;
        Ok(Self {
            report,
            out,
            separator: "\n",
        })
    }

    pub(super) fn page(&mut self, page: &[FailureRecord]) -> io::Result<()> {
        for failure in page {
            let line = Line {
                campaign: self.campaign_of(failure.campaign_id),
                phone: &failure.phone,
                content: &failure.content,
                state: failure.state,
                class: &failure.class,
                code: failure.code.as_deref(),
                reason: &failure.reason,
                attempts: failure.attempts,
                last_attempt_at: failure.last_attempt_at.map(|moment| moment.to_string()),
                columns: columns_of(failure),
            };
            self.line(&line)?;
        }
        Ok(())
    }

    pub(super) fn sent(&mut self, page: &[SentMessage]) -> io::Result<()> {
        for message in page {
            let line = SentLine {
                campaign: self.campaign_of(message.campaign_id),
                phone: &message.phone,
                provider: &message.provider,
                message_id: message.message_id.as_deref(),
                segments: message.segments,
                price: message.price.as_deref(),
                sent_at: message.sent_at.to_string(),
                attempts: message.attempts,
                accepted: message.accepted,
            };
            self.line(&line)?;
        }
        Ok(())
    }

    fn campaign_of(&self, id: i64) -> Option<&'a str> {
        match self.report.campaign {
            Some(_) => None,
            None => self.report.campaign_name(id),
        }
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.out.write_all(self.separator.as_bytes())?;
        self.separator = ",\n";
        let line = serde_json::to_string(line)?;
        self.out.write_all(printable_json(&line).as_bytes())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        let end: &[u8] = if self.separator == "\n" {
            b"]}\n"
        } else {
            b"\n]}\n"
        };
        self.out.write_all(end)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(report: &Report, failures: &[FailureRecord]) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(report, "failures", &mut bytes).expect("written");
        writer.page(failures).expect("written");
        writer.finish().expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn one_campaign_is_one_object() {
        let mut report = sample::report();
        report.history = None;
        insta::assert_snapshot!(written(&report, &sample::failures()), @r#"
        {"campaign":"spring sale","state":"done","state_reason":null,"imported":12345,"queued":0,"sending":0,"sent":12032,"failed":300,"unknown":13,"cancelled":0,"first_sent_at":"2025-11-21T09:00:00Z","last_sent_at":"2025-11-21T09:04:05Z","took_ms":245300,"rate":49.05,"segments":13006,"repeated":0,"alphabets":{"gsm7":12300,"ucs2":45},"cost":null,"countries":[{"name":"GB +44","sent":12000,"segments":12974,"cost":null},{"name":"CN +86","sent":32,"segments":32,"cost":null}],"providers":[{"name":"cellar","sent":12032,"segments":13006,"cost":null}],"sender":"ACME","text":"Dear {{ name }}, \"20 %\" off, today only","lists":{"names":["spring.csv"],"count":1,"rows":12400,"accepted":12345,"duplicates":40,"suppressed":10,"rejected":5},"opted_out":6,"over_time":null,"by_reason":[{"class":"recipient","code":"21211","reason":"not a valid number","advice":"mend the number in the report's csv and import it again","count":210},{"class":"unavailable","code":null,"reason":"503: the service is busy","advice":"the provider was away: `smsq retry --class unavailable` when it is back, then `smsq send`","count":84},{"class":"unknown","code":null,"reason":"no answer within 10 s","advice":"ask the provider whether it arrived, then `smsq settle --unknown sent|failed`, or `smsq retry --unknown` to risk a second one","count":13},{"class":"opted_out","code":"21610","reason":"unsubscribed <STOP>","advice":"leave them alone: they asked for no more messages","count":6}],"failures":[
        {"phone":"+8613812345678","content":"Dear Ann, \"20 %\" off, today only","state":"failed","class":"recipient","code":"21211","reason":"not a valid number","attempts":1,"last_attempt_at":"2025-11-21T09:00:00Z","columns":{"name":"Ann","城市":"北京"}},
        {"phone":"+447700900123","content":"Dear <b>Bob</b>,\nhello","state":"unknown","class":"unknown","code":null,"reason":"no answer within 10 s","attempts":2,"last_attempt_at":"2025-11-21T09:00:00Z","columns":{"name":"=Bob","vip":true}},
        {"phone":"+15005550006","content":"Dear Ann, \"20 %\" off, today only","state":"cancelled","class":"cancelled","code":null,"reason":"the campaign was cancelled","attempts":0,"last_attempt_at":null,"columns":{}}
        ]}
        "#);
    }

    #[test]
    fn all_campaigns_are_sums_and_a_list() {
        let mut report = sample::report();
        report.campaign = None;
        let text = written(&report, &sample::failures()[..1]);
        let value: Value = serde_json::from_str(&text).expect("json");
        let object = value.as_object().expect("an object");
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "imported",
                "queued",
                "sending",
                "sent",
                "failed",
                "unknown",
                "cancelled",
                "first_sent_at",
                "last_sent_at",
                "took_ms",
                "rate",
                "segments",
                "repeated",
                "alphabets",
                "cost",
                "countries",
                "providers",
                "sender",
                "text",
                "lists",
                "opted_out",
                "over_time",
                "by_reason",
                "campaigns",
                "failures"
            ]
        );
        assert_eq!(value["over_time"]["spans"][49]["sent"], 32);
        assert_eq!(value["campaigns"][0]["campaign"], "spring sale");
        assert_eq!(value["failures"][0]["campaign"], "spring sale");
    }

    #[test]
    fn without_failures_the_list_is_empty() {
        let text = written(&sample::report(), &[]);
        let value: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(value["failures"], Value::Array(Vec::new()));
    }
}
