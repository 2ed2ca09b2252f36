//! The report as one JSON object. Its list of messages is written page by page, one message per line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};
use smsq_message::text::printable_json;
use smsq_store::report::{FailureRecord, SentMessage};

use super::{Report, columns_of};

pub(super) struct Writer<'a, W: Write> {
    report: &'a Report,
    out: W,
    separator: &'static str,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the object up to the list under the key `list`.
    pub(super) fn begin(report: &'a Report, list: &str, mut out: W) -> io::Result<Self> {
        let head = serde_json::to_string(&head(report)?)?;
        // The object stays open for the list, which may be too long to hold in memory.
        let open = head.strip_suffix('}').unwrap_or(&head);
        out.write_all(printable_json(open).as_bytes())?;
        write!(out, ",\"{list}\":[")?;
        Ok(Self { report, out, separator: "\n" })
    }

    pub(super) fn failures(&mut self, page: &[FailureRecord]) -> io::Result<()> {
        for failure in page {
            let mut line = serde_json::to_value(failure)?;
            line["last_attempt_at"] = json!(failure.last_attempt_at.map(|at| at.to_string()));
            line["columns"] = columns_of(failure).into();
            self.line(failure.campaign_id, line)?;
        }
        Ok(())
    }

    pub(super) fn sent(&mut self, page: &[SentMessage]) -> io::Result<()> {
        for message in page {
            let line = json!({
                "phone": message.phone,
                "provider": message.provider,
                "message_id": message.message_id,
                "segments": message.segments,
                "price": message.price,
                "sent_at": message.sent_at.to_string(),
                "attempts": message.attempts,
                "accepted": message.accepted,
                "delivery": message.delivery_state,
                "delivered_at": message.delivery_at.map(|at| at.to_string()),
            });
            self.line(message.campaign_id, line)?;
        }
        Ok(())
    }

    /// Writes one message, with its campaign in a report on all campaigns.
    fn line(&mut self, campaign_id: i64, mut line: Value) -> io::Result<()> {
        if self.report.campaign.is_none()
            && let Some(line) = line.as_object_mut()
        {
            let campaign = self.report.campaign_name(campaign_id);
            line.shift_insert(0, "campaign".to_owned(), campaign.into());
        }
        self.out.write_all(self.separator.as_bytes())?;
        self.separator = ",\n";
        let line = line.to_string();
        self.out.write_all(printable_json(&line).as_bytes())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        let is_empty = self.separator == "\n";
        self.out.write_all(if is_empty { b"]}\n" } else { b"\n]}\n" })?;
        self.out.flush()
    }
}

/// Everything before the list: a report on one campaign begins with its status, one on all with the sums.
fn head(report: &Report) -> serde_json::Result<Map<String, Value>> {
    let mut head = match report.status() {
        Some(status) => object(status)?,
        None => object(&report.summaries.sums())?,
    };
    head.extend(object(report)?);
    if report.totals.delivery.is_none() {
        head.retain(|key, _| !matches!(key.as_str(), "undelivered_by_reason" | "delivery_ms"));
    }
    if report.campaign.is_none() {
        head.insert("campaigns".to_owned(), json!(report.summaries.campaigns));
        if report.summaries.removed.imported > 0 {
            head.insert("removed_campaigns".to_owned(), json!(report.summaries.removed));
        }
    }
    Ok(head)
}

fn object(value: &impl Serialize) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_value(serde_json::to_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn written(report: &Report, failures: &[FailureRecord]) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(report, "failures", &mut bytes).expect("written");
        writer.failures(failures).expect("written");
        writer.finish().expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn one_campaign_is_one_object() {
        let mut report = sample::report();
        report.histogram = None;
        insta::assert_snapshot!(written(&report, &sample::failures()), @r#"
        {"campaign":"spring sale","practice":false,"state":"done","state_reason":null,"imported":12345,"queued":0,"sending":0,"sent":12032,"failed":300,"unknown":13,"cancelled":0,"first_sent_at":"2025-11-21T09:00:00Z","last_sent_at":"2025-11-21T09:04:05Z","took_ms":245300,"rate":49.05,"segments":13006,"repeated":0,"alphabets":{"gsm7":12300,"ucs2":45},"cost":null,"countries":[{"name":"GB +44","sent":12000,"segments":12974,"cost":null},{"name":"CN +86","sent":32,"segments":32,"cost":null}],"providers":[{"name":"cellar","sent":12032,"segments":13006,"cost":null}],"failovers":[],"sender":"ACME","text":"Dear {{ name }}, \"20 %\" off, today only","lists":{"names":["spring.csv"],"count":1,"rows":12400,"accepted":12345,"duplicates":40,"suppressed":10,"rejected":5},"opted_out":6,"over_time":null,"by_reason":[{"class":"recipient","code":"21211","reason":"not a valid number","advice":"fix the number and import it again","count":210},{"class":"unavailable","code":null,"reason":"503: the service is busy","advice":"the provider was unavailable: send again later","count":84},{"class":"unknown","code":null,"reason":"no answer within 10 s","advice":"look in the provider's records whether it arrived","count":13},{"class":"opted_out","code":"21610","reason":"unsubscribed <STOP>","advice":"do not send again: they asked for no more messages","count":6}],"failures":[
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
                "practice",
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
                "failovers",
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
    fn receipts_add_counts_reasons_and_times() {
        let text = written(&sample::with_receipts(), &[]);
        let value: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(
            value["delivery"],
            json!({ "delivered": 11_000, "undelivered": 700, "expired": 0, "no_report": 32, "awaiting": 300 })
        );
        assert_eq!(value["delivery_ms"], json!({ "median": 4_200, "p95": 95_000 }));
        assert_eq!(value["undelivered_by_reason"][0]["code"], "30005");
    }

    #[test]
    fn list_is_empty_without_failures() {
        let text = written(&sample::report(), &[]);
        let value: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(value["failures"], Value::Array(Vec::new()));
    }
}
