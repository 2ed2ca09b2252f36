//! The failures as a file that can be fixed and imported again: the columns are those of the import,
//! between `phone, content` and our own `smsq_…`. Text that a spreadsheet would take for a formula is
//! guarded, and import takes the guard off.

use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::Value;

use super::{Report, Standing, columns_of};
use crate::store::report::{FailureRecord, SentMessage};
use crate::text::spreadsheet::guarded;

const FIRST: [&str; 2] = ["phone", "content"];

/// Import knows these by their prefix.
const LAST: [&str; 6] = [
    "smsq_id",
    "smsq_state",
    "smsq_class",
    "smsq_code",
    "smsq_reason",
    "smsq_attempts",
];

/// The imported columns of all failures, in the order in which they are met.
#[derive(Debug, Default)]
pub(super) struct Columns {
    names: Vec<String>,
    known: HashSet<String>,
}

impl Columns {
    pub(super) fn gather(&mut self, page: &[FailureRecord]) {
        for failure in page {
            for (name, _) in columns_of(failure) {
                if !is_ours(&name) && self.known.insert(name.trim().to_owned()) {
                    self.names.push(name);
                }
            }
        }
    }
}

/// A column that import would take for one of ours; `phone` and `content` say what was made of it.
fn is_ours(name: &str) -> bool {
    let name = name.trim();
    FIRST.contains(&name) || name.starts_with("smsq_")
}

pub(super) struct Writer<W: Write> {
    columns: Vec<String>,
    out: ::csv::Writer<W>,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(columns: Columns, out: W) -> io::Result<Self> {
        let mut out = ::csv::Writer::from_writer(out);
        let names = columns.names.iter().map(String::as_str);
        let names = FIRST.into_iter().chain(names).chain(LAST);
        out.write_record(names.map(|name| guarded(name.as_bytes())))
            .map_err(fault)?;
        Ok(Self {
            columns: columns.names,
            out,
        })
    }

    pub(super) fn page(&mut self, page: &[FailureRecord]) -> io::Result<()> {
        for failure in page {
            self.failure(failure).map_err(fault)?;
        }
        Ok(())
    }

    fn failure(&mut self, failure: &FailureRecord) -> Result<(), ::csv::Error> {
        let out = &mut self.out;
        let mut write = |cell: &str| out.write_field(guarded(cell.as_bytes()));
        write(&failure.phone)?;
        write(&failure.content)?;
        let values = columns_of(failure);
        for name in &self.columns {
            match values.get(name) {
                Some(Value::String(text)) => write(text)?,
                Some(Value::Null) | None => write("")?,
                Some(value) => write(&value.to_string())?,
            }
        }
        write(&failure.id.to_string())?;
        write(failure.state.as_str())?;
        write(&failure.class)?;
        write(failure.code.as_deref().unwrap_or_default())?;
        write(&failure.reason)?;
        write(&failure.attempts.to_string())?;
        out.write_record(None::<&[u8]>)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The messages that were sent, a line each: what the provider's invoice is compared with.
pub(super) struct SentWriter<W: Write>(::csv::Writer<W>);

impl<W: Write> SentWriter<W> {
    pub(super) fn begin(out: W) -> io::Result<Self> {
        let mut out = ::csv::Writer::from_writer(out);
        out.write_record([
            "phone",
            "campaign",
            "provider",
            "message_id",
            "segments",
            "price",
            "sent_at",
            "attempts",
            "accepted",
        ])
        .map_err(fault)?;
        Ok(Self(out))
    }

    pub(super) fn page(&mut self, report: &Report, page: &[SentMessage]) -> io::Result<()> {
        for message in page {
            let campaign = report.campaign_name(message.campaign_id);
            let segments = message.segments.map(|count| count.to_string());
            let sent_at = message.sent_at.to_string();
            let (attempts, accepted) = (message.attempts.to_string(), message.accepted.to_string());
            let cells = [
                message.phone.as_str(),
                campaign.unwrap_or_default(),
                &message.provider,
                message.message_id.as_deref().unwrap_or_default(),
                segments.as_deref().unwrap_or_default(),
                message.price.as_deref().unwrap_or_default(),
                &sent_at,
                &attempts,
                &accepted,
            ];
            self.0
                .write_record(cells.map(|cell| guarded(cell.as_bytes())))
                .map_err(fault)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// One line per campaign.
pub(super) fn write_standings(standings: &[Standing], out: impl Write) -> io::Result<()> {
    let mut out = ::csv::Writer::from_writer(out);
    out.write_record([
        "campaign",
        "state",
        "imported",
        "queued",
        "sending",
        "sent",
        "failed",
        "unknown",
        "cancelled",
    ])
    .map_err(fault)?;
    for one in standings {
        let totals = &one.totals;
        out.write_record([
            &*guarded(one.campaign.as_bytes()),
            one.state.as_bytes(),
            totals.imported.to_string().as_bytes(),
            totals.queued.to_string().as_bytes(),
            totals.sending.to_string().as_bytes(),
            totals.sent.to_string().as_bytes(),
            totals.failed.to_string().as_bytes(),
            totals.unknown.to_string().as_bytes(),
            totals.cancelled.to_string().as_bytes(),
        ])
        .map_err(fault)?;
    }
    out.flush()
}

/// The crate hides an I/O error's kind when it converts it.
fn fault(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use proptest::prelude::*;

    fn written(failures: &[FailureRecord]) -> String {
        let mut columns = Columns::default();
        columns.gather(failures);
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(columns, &mut bytes).expect("written");
        writer.page(failures).expect("written");
        writer.finish().expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn a_failure_has_its_imported_columns_and_its_reason() {
        insta::assert_snapshot!(written(&sample::failures()), @r#"
        phone,content,name,城市,vip,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts
        +8613812345678,"Dear Ann, ""20 %"" off, today only",Ann,北京,,7,failed,recipient,21211,not a valid number,1
        +447700900123,"Dear <b>Bob</b>,
        hello",'=Bob,,true,9,unknown,unknown,,no answer within 10 s,2
        +15005550006,"Dear Ann, ""20 %"" off, today only",,,,12,cancelled,cancelled,,the campaign was cancelled,0
        "#);
    }

    #[test]
    fn without_failures_the_header_stands_alone() {
        assert_eq!(
            written(&[]),
            "phone,content,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts\n"
        );
    }

    #[test]
    fn a_column_that_would_be_taken_for_ours_is_left_out() {
        let mut failure = sample::failures().remove(0);
        failure.params =
            r#"{"phone ":"138 1234","smsq_id":"7","name":"Ann","name ":"Bob"}"#.to_owned();
        let text = written(&[failure]);
        assert!(text.starts_with("phone,content,name,smsq_id,"), "{text}");
    }

    #[test]
    fn what_is_no_object_of_columns_has_none() {
        let mut failure = sample::failures().remove(0);
        failure.params = "not json".to_owned();
        assert!(written(&[failure]).starts_with("phone,content,smsq_id,"));
    }

    #[test]
    fn each_campaign_is_a_line() {
        let mut bytes = Vec::new();
        write_standings(&sample::report().standings, &mut bytes).expect("written");
        insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r"
        campaign,state,imported,queued,sending,sent,failed,unknown,cancelled
        spring sale,done,12345,0,0,12032,300,13,0
        ");
    }

    proptest! {
        #[test]
        fn every_cell_survives(
            content in any::<String>(),
            reason in any::<String>(),
            cells in prop::collection::vec(("[a-z=+@-][a-z ,\"\n]{0,4}[a-z=]", any::<String>()), 0..5),
        ) {
            let cells: std::collections::BTreeMap<String, String> =
                cells.into_iter().filter(|(name, _)| !is_ours(name)).collect();
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
