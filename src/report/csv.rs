//! The report as CSV: failed messages that can be fixed and imported again, sent messages, or one line per campaign.
//! Cells that a spreadsheet would run as formulas are guarded, and import removes the guard.

use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::Value;
use smsq_message::text::spreadsheet::guarded;
use smsq_store::report::{FailureRecord, SentMessage};

use super::status::CampaignSummary;
use super::text::counts;
use super::{Report, columns_of};

const FIRST: [&str; 2] = ["phone", "content"];
/// Import ignores columns with this prefix, except for `smsq_id`.
const LAST: &str = "smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts";
const SENT: &str = "phone,campaign,provider,message_id,segments,price,sent_at,attempts,accepted,delivery,\
                    delivered_at";
const CAMPAIGNS: &str = "campaign,state,imported,queued,sending,sent,failed,unknown,cancelled,delivered,\
                         undelivered,expired,no_report,awaiting,not_awaited";

/// The imported columns of all failed messages, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct ImportedColumns {
    names: Vec<String>,
    known: HashSet<String>,
}

impl ImportedColumns {
    pub(super) fn collect(&mut self, page: &[FailureRecord]) {
        for failure in page {
            for (name, _) in columns_of(failure) {
                if !is_reserved(&name) && self.known.insert(name.trim().to_owned()) {
                    self.names.push(name);
                }
            }
        }
    }

    /// Begins a file of failed messages.
    pub(super) fn begin<W: Write>(&self, out: W) -> io::Result<::csv::Writer<W>> {
        let names = self.names.iter().map(String::as_str);
        begin(FIRST.into_iter().chain(names).chain(LAST.split(',')), out)
    }

    pub(super) fn write(
        &self,
        page: &[FailureRecord],
        out: &mut ::csv::Writer<impl Write>,
    ) -> io::Result<()> {
        for failure in page {
            let values = columns_of(failure);
            let columns = self.names.iter().map(|name| match values.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(value) => value.to_string(),
            });
            let first = [failure.phone.clone(), failure.content.clone()];
            let last = [
                failure.id.to_string(),
                failure.state.as_str().to_owned(),
                failure.class.clone(),
                failure.code.clone().unwrap_or_default(),
                failure.reason.clone(),
                failure.attempts.to_string(),
            ];
            write_record(out, first.into_iter().chain(columns).chain(last))?;
        }
        Ok(())
    }
}

/// Whether the report has a column of this name itself.
fn is_reserved(name: &str) -> bool {
    let name = name.trim();
    FIRST.contains(&name) || name.starts_with("smsq_")
}

/// Begins a file of sent messages, for comparison with the provider's invoice.
pub(super) fn begin_sent<W: Write>(out: W) -> io::Result<::csv::Writer<W>> {
    begin(SENT.split(','), out)
}

pub(super) fn write_sent(
    report: &Report,
    page: &[SentMessage],
    out: &mut ::csv::Writer<impl Write>,
) -> io::Result<()> {
    for message in page {
        let campaign = report.campaign_name(message.campaign_id);
        let segments = message.segments.map(|count| count.to_string());
        let record = [
            message.phone.clone(),
            campaign.unwrap_or_default().to_owned(),
            message.provider.clone(),
            message.message_id.clone().unwrap_or_default(),
            segments.unwrap_or_default(),
            message.price.clone().unwrap_or_default(),
            message.sent_at.to_string(),
            message.attempts.to_string(),
            message.accepted.to_string(),
            message.delivery_state.clone().unwrap_or_default(),
            message.delivery_at.map(|at| at.to_string()).unwrap_or_default(),
        ];
        write_record(out, record)?;
    }
    Ok(())
}

/// Writes one line per campaign.
pub(super) fn write_campaigns(campaigns: &[CampaignSummary], out: impl Write) -> io::Result<()> {
    let mut out = begin(CAMPAIGNS.split(','), out)?;
    for campaign in campaigns {
        let names = [campaign.campaign.clone(), campaign.state.to_owned()];
        let counts = counts(&campaign.totals).map(|(_, count)| count.to_string());
        // Empty where no receipts are awaited.
        let delivery = campaign.totals.delivery.as_ref().map_or_else(
            || vec![String::new(); 6],
            |counts| counts.by_state().map(|(_, count)| count.to_string()).to_vec(),
        );
        write_record(&mut out, names.into_iter().chain(counts).chain(delivery))?;
    }
    out.flush()
}

fn begin<'a, W: Write>(
    header: impl IntoIterator<Item = &'a str>,
    out: W,
) -> io::Result<::csv::Writer<W>> {
    let mut out = ::csv::Writer::from_writer(out);
    write_record(&mut out, header)?;
    Ok(out)
}

/// Writes guarded cells. Returns I/O errors with their kind, which `csv` hides when it converts them.
fn write_record<W: Write>(
    out: &mut ::csv::Writer<W>,
    cells: impl IntoIterator<Item = impl AsRef<str>>,
) -> io::Result<()> {
    let write = || {
        for cell in cells {
            out.write_field(guarded(cell.as_ref().as_bytes()))?;
        }
        out.write_record(None::<&[u8]>)
    };
    write().map_err(|error: ::csv::Error| match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    fn written(failures: &[FailureRecord]) -> String {
        let mut columns = ImportedColumns::default();
        columns.collect(failures);
        let mut bytes = Vec::new();
        let mut writer = columns.begin(&mut bytes).expect("written");
        columns.write(failures, &mut writer).expect("written");
        drop(writer);
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn failures_have_imported_columns_and_reasons() {
        insta::assert_snapshot!(written(&sample::failures()), @r#"
        phone,content,name,城市,vip,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts
        +8613812345678,"Dear Ann, ""20 %"" off, today only",Ann,北京,,7,failed,recipient,21211,not a valid number,1
        +447700900123,"Dear <b>Bob</b>,
        hello",'=Bob,,true,9,unknown,unknown,,no answer within 10 s,2
        +15005550006,"Dear Ann, ""20 %"" off, today only",,,,12,cancelled,cancelled,,the campaign was cancelled,0
        "#);
    }

    #[test]
    fn header_is_written_without_failures() {
        assert_eq!(
            written(&[]),
            "phone,content,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts\n"
        );
    }

    #[test]
    fn reserved_columns_are_left_out() {
        let mut failure = sample::failures().remove(0);
        failure.params =
            r#"{"phone ":"138 1234","smsq_id":"7","name":"Ann","name ":"Bob"}"#.to_owned();
        let text = written(&[failure]);
        assert!(text.starts_with("phone,content,name,smsq_id,"), "{text}");
    }

    #[test]
    fn invalid_params_have_no_columns() {
        let mut failure = sample::failures().remove(0);
        failure.params = "not json".to_owned();
        assert!(written(&[failure]).starts_with("phone,content,smsq_id,"));
    }

    #[test]
    fn each_campaign_is_a_line() {
        let mut bytes = Vec::new();
        write_campaigns(&sample::report().summaries.campaigns, &mut bytes).expect("written");
        insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r"
        campaign,state,imported,queued,sending,sent,failed,unknown,cancelled,delivered,undelivered,expired,no_report,awaiting,not_awaited
        spring sale,done,12345,0,0,12032,300,13,0,,,,,,
        ");
    }

    proptest! {
        #[test]
        fn every_cell_is_written_exactly(
            content in any::<String>(),
            reason in any::<String>(),
            cells in prop::collection::vec(("[a-z=+@-][a-z ,\"\n]{0,4}[a-z=]", any::<String>()), 0..5),
        ) {
            let cells: std::collections::BTreeMap<String, String> =
                cells.into_iter().filter(|(name, _)| !is_reserved(name)).collect();
            let mut failure = sample::failures().remove(0);
            failure.content.clone_from(&content);
            failure.reason.clone_from(&reason);
            failure.params = serde_json::to_string(&cells).expect("a map of texts");
            let text = written(&[failure.clone()]);
            let mut reader = ::csv::Reader::from_reader(text.as_bytes());
            let header = reader.headers().expect("a header").clone();
            let row = reader.records().next().expect("a row").expect("as many cells as columns");
            let cell = |name: &str| header.iter().position(|known| known == name).and_then(|at| row.get(at));
            let guarded = |text: &str| String::from_utf8_lossy(&guarded(text.as_bytes())).into_owned();
            let is = |name: &str, text: &str| cell(name) == Some(guarded(text).as_str());
            prop_assert!(is("phone", &failure.phone) && is("content", &content));
            prop_assert!(is("smsq_reason", &reason));
            for (name, value) in &cells {
                prop_assert!(is(&guarded(name), value));
            }
        }
    }
}
