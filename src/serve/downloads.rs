//! Files that pages and the API share: reports, lists of messages, rejected rows. Who downloads phones is recorded.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use smsq_report::{Format, Listing, Report, ReportOptions};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;

use super::intake::Draft;
use super::problem::Problem;
use super::state::ServerState;
use super::tokens::{Identity, Permission};

/// The least bytes that are sent at once.
const PART: usize = 32 << 10;
/// How long a client may take to read the next part of a file.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The report has a style of its own.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
     base-uri 'none'; form-action 'none'";

const CSV: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];

/// The report of a campaign as a page.
pub(super) async fn report_html(
    shared: &Arc<ServerState>,
    who: &Identity,
    name: &str,
) -> Result<Response, Problem> {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, REPORT_POLICY),
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    ];
    let body = report_file(shared, who, name, Format::Html, Listing::Figures).await?;
    Ok((headers, body).into_response())
}

/// A list of messages as CSV, for pages and for programs.
pub(super) async fn report_csv(
    shared: &Arc<ServerState>,
    who: &Identity,
    name: &str,
    list: &str,
) -> Result<Response, Problem> {
    let listing = match list {
        "failed" => Listing::Failed,
        "undelivered" => Listing::Undelivered,
        "sent" => Listing::Sent,
        "figures" => Listing::Figures,
        other => {
            return Err(Problem::invalid(format!(
                "unknown list `{}`: use `failed`, `undelivered`, `sent` or `figures`",
                other.escape_debug()
            )));
        }
    };
    let file = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let practice = if shared.store.mode().is_practice() { "practice-" } else { "" };
    let attachment = format!("attachment; filename*=UTF-8''{practice}{file}-{list}.csv");
    let body = report_file(shared, who, name, Format::Csv, listing).await?;
    let headers = [(header::CONTENT_DISPOSITION, attachment)];
    Ok((CSV, headers, body).into_response())
}

/// Writes a report into the body of a response while it is read, with phones and texts if the role may see them. Only
/// some are written at once, because each takes a thread and holds back the database's cleaning.
async fn report_file(
    shared: &Arc<ServerState>,
    who: &Identity,
    name: &str,
    format: Format,
    listing: Listing,
) -> Result<Body, Problem> {
    let campaign = shared.campaign(name).await?;
    let turn = shared.download_turn()?;
    let is_whole = who.role.may(Permission::Operate);
    if is_whole && (format == Format::Html || listing != Listing::Figures) {
        let what = match listing {
            Listing::Failed => "the failed messages",
            Listing::Undelivered => "the undelivered messages",
            Listing::Sent => "the sent messages",
            Listing::Figures => "the report",
        };
        record_download(shared, who, Some(name), what).await?;
    }
    let (sender, mut receiver) = mpsc::channel::<io::Result<Bytes>>(4);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _turn = turn;
        let store = &shared.patient_store;
        let options = ReportOptions {
            mask: !is_whole,
            prices: shared.prices.clone(),
            ..ReportOptions::default()
        };
        let mut out = BodyWriter { sender: sender.clone(), buffer: Vec::new() };
        let written = async {
            let report = Report::gather(store, Some(&campaign), &options).await?;
            report.write(store, format, listing, &mut out).await
        };
        let written = tokio::select! {
            written = written => written,
            // The client disconnected.
            () = sender.closed() => return,
        };
        if let Err(error) = written {
            tracing::warn!(%error, "a report was not written whole");
            // The body ends with an error, so that it does not look complete.
            let _ = sender.send(Err(io::Error::other("incomplete"))).await;
        }
    });
    let parts = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    Ok(Body::from_stream(parts))
}

/// Records who downloads phones.
async fn record_download(
    shared: &ServerState,
    who: &Identity,
    campaign: Option<&str>,
    what: &str,
) -> Result<(), Problem> {
    let detail = match campaign {
        Some(campaign) => format!("downloaded {what} of `{campaign}`"),
        None => format!("downloaded {what}"),
    };
    shared.store.record(&who.name, "download", campaign, &detail).await?;
    Ok(())
}

/// Sends what is written as parts of a body.
struct BodyWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl io::Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PART {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        let sending = tokio::time::timeout(READ_TIMEOUT, self.sender.send(Ok(part)));
        let sent = tokio::task::block_in_place(|| Handle::current().block_on(sending));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn no_rejects() -> Problem {
    Problem::not_found("no row of this list is rejected, or it was not read to its end yet")
}

/// The file with the rejected rows of an upload, for programs and for pages.
pub(super) async fn rejected_rows(
    shared: &ServerState,
    who: &Identity,
    id: &str,
) -> Result<Response, Problem> {
    let path = shared.intake.uploads.rejects(id);
    rejected_rows_in(shared, who, path.as_deref(), &format!("upload `{id}`")).await
}

/// The same of a draft that was checked.
pub(super) async fn rejected_rows_of_draft(
    shared: &ServerState,
    who: &Identity,
    draft: &Draft,
) -> Result<Response, Problem> {
    let path = draft.rejects_file();
    let what = format!("draft `{}`", draft.id);
    rejected_rows_in(shared, who, path.as_deref(), &what).await
}

async fn rejected_rows_in(
    shared: &ServerState,
    who: &Identity,
    path: Option<&Path>,
    of: &str,
) -> Result<Response, Problem> {
    let path = path.ok_or_else(no_rejects)?;
    let file = tokio::fs::File::open(path).await.map_err(|_| no_rejects())?;
    record_download(shared, who, None, &format!("the rejected rows of {of}")).await?;
    let attachment = "attachment; filename=\"rejects.csv\"";
    let headers = [(header::CONTENT_DISPOSITION, attachment)];
    let body = Body::from_stream(ReaderStream::with_capacity(file, PART));
    Ok((CSV, headers, body).into_response())
}
