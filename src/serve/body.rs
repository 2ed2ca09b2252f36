//! The bodies of requests. They are read here and nowhere else in the server, by functions that limit the whole of what
//! they keep in memory, whatever a body is made of.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{Stream, StreamExt as _};
use http::{Request, StatusCode, header};
use hyper::body::{Frame, SizeHint};

use super::problem::Problem;

/// The most bytes of the body of a request, except for batches and files, and of a form.
pub(super) const MAX_BODY: usize = 1 << 20;
const MAX_FORM: usize = 64 << 10;
/// The most bytes of all fields of a form with a file together, with their names and headers.
const MAX_FIELDS: usize = (1 << 20) + (64 << 10);
/// How long the next part of a body may take.
pub(super) const PART_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a body is read that nothing wants, and for how long.
const MAX_DISCARDED: u64 = 4 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The whole body, of at most [`MAX_BODY`].
pub(super) struct WholeBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Problem;

    async fn from_request(mut request: Request<Body>, state: &S) -> Result<Self, Problem> {
        DefaultBodyLimit::max(MAX_BODY).apply(&mut request);
        Ok(Self(Bytes::from_request(request, state).await?))
    }
}

/// The fields of a form, of at most [`MAX_FORM`].
pub(super) struct Form<T>(pub(super) T);

impl<T, S> FromRequest<S> for Form<T>
where
    axum::Form<T>: FromRequest<S, Rejection = axum::extract::rejection::FormRejection>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(mut request: Request<Body>, state: &S) -> Result<Self, Problem> {
        DefaultBodyLimit::max(MAX_FORM).apply(&mut request);
        let axum::Form(form) = axum::Form::<T>::from_request(request, state).await?;
        Ok(Self(form))
    }
}

/// A body that is read in parts.
pub(super) struct StreamedBody(BodyDataStream);

impl<S: Send + Sync> FromRequest<S> for StreamedBody {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, Problem> {
        Ok(Self(request.into_body().into_data_stream()))
    }
}

impl StreamedBody {
    /// The next part, within its time; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match tokio::time::timeout(PART_TIMEOUT, self.0.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(part))) => Ok(Some(part)),
            Ok(Some(Err(_))) => Err(Problem::invalid("the body ended early")),
            Err(_) => {
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
            }
        }
    }

    /// All of it; `None` if it has more bytes than `most`.
    pub(super) async fn whole(mut self, most: usize) -> Result<Option<Vec<u8>>, Problem> {
        // It is never copied as it grows, and what is not written takes no memory.
        let mut text = Vec::with_capacity(most);
        while let Some(part) = self.next().await? {
            if text.len() + part.len() > most {
                return Ok(None);
            }
            text.extend_from_slice(&part);
        }
        Ok(Some(text))
    }

    /// Its lines. Of a longer one than `most` bytes, one byte more is kept.
    pub(super) fn lines(self, most: usize) -> Lines {
        Lines { body: self, part: Bytes::new(), line: Vec::new(), most }
    }
}

/// The lines of a body.
pub(super) struct Lines {
    body: StreamedBody,
    part: Bytes,
    /// The start of the present line.
    line: Vec<u8>,
    most: usize,
}

impl Lines {
    /// The next line, without its end; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
                let rest = self.part.split_to(end + 1).slice(..end);
                if self.line.is_empty() {
                    return Ok(Some(rest));
                }
                self.push(&rest);
                return Ok(Some(std::mem::take(&mut self.line).into()));
            }
            let part = std::mem::take(&mut self.part);
            self.push(&part);
            match self.body.next().await? {
                Some(part) => self.part = part,
                None if self.line.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.line).into())),
            }
        }
    }

    fn push(&mut self, more: &[u8]) {
        let room = (self.most + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&more[..more.len().min(room)]);
    }
}

/// How many bytes of a form with a file may still be kept: those of the file are given back when they are taken.
#[derive(Clone)]
struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// Takes what was received; false if it is too much.
    fn take(&self, bytes: usize) -> bool {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if taken.is_err() {
            self.0.store(0, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A body of which one part at a time is read, as far as its allowance goes. The reader of forms would otherwise buffer
/// all that has arrived.
struct Metered {
    body: BodyDataStream,
    allowance: Allowance,
    /// The last call has returned a part.
    has_given: bool,
}

impl Stream for Metered {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.has_given) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let part = std::task::ready!(self.body.poll_next_unpin(context));
        self.has_given = part.is_some();
        Poll::Ready(part.map(|part| {
            let part = part?;
            if self.allowance.take(part.len()) {
                Ok(part)
            } else {
                Err(axum::Error::new("the form is too large"))
            }
        }))
    }
}

/// A form with a file, of which all fields together have at most [`MAX_FIELDS`].
pub(super) struct FileForm {
    form: Multipart,
    allowance: Allowance,
}

impl<S: Send + Sync> FromRequest<S> for FileForm {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Self, Problem> {
        let allowance = Allowance(Arc::new(AtomicUsize::new(MAX_FIELDS)));
        let mut request = request.map(|body| {
            Body::from_stream(Metered {
                body: body.into_data_stream(),
                allowance: allowance.clone(),
                has_given: false,
            })
        });
        DefaultBodyLimit::disable().apply(&mut request);
        let form = Multipart::from_request(request, state).await?;
        Ok(Self { form, allowance })
    }
}

/// A part of a form: the value of a field, or a file.
pub(super) struct FormPart<'a> {
    field: Field<'a>,
    allowance: Allowance,
}

/// Waits for a part of a form, within its time.
async fn in_time<T>(
    part: impl Future<Output = Result<T, MultipartError>>,
    allowance: &Allowance,
) -> Result<T, Problem> {
    let part = tokio::time::timeout(PART_TIMEOUT, part).await.map_err(|_| {
        let detail = "the file did not arrive in time";
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })?;
    part.map_err(|error| {
        if allowance.is_used_up() {
            let detail = "the fields of the form are larger than 1 MiB together";
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
        }
        Problem::new(error.status(), error.body_text())
    })
}

impl FileForm {
    /// The next field or file; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<FormPart<'_>>, Problem> {
        let field = in_time(self.form.next_field(), &self.allowance).await?;
        Ok(field.map(|field| FormPart { field, allowance: self.allowance.clone() }))
    }
}

impl FormPart<'_> {
    pub(super) fn name(&self) -> &str {
        self.field.name().unwrap_or_default()
    }

    pub(super) fn file_name(&self) -> Option<&str> {
        self.field.file_name()
    }

    /// The value of a field, of at most `most` bytes.
    pub(super) async fn value(mut self, most: usize) -> Result<String, Problem> {
        let name = self.name().to_owned();
        let mut value = Vec::new();
        while let Some(part) = in_time(self.field.chunk(), &self.allowance).await? {
            if value.len() + part.len() > most {
                let detail = format!("invalid `{name}`: it is longer than {} KiB", most >> 10);
                return Err(Problem::invalid(detail));
            }
            value.extend_from_slice(&part);
        }
        String::from_utf8(value)
            .map_err(|_| Problem::invalid(format!("invalid `{name}`: it is not UTF-8")))
    }

    /// The next bytes of a file, which the caller does not keep in memory; `None` at its end.
    pub(super) async fn next_of_file(&mut self) -> Result<Option<Bytes>, Problem> {
        let part = in_time(self.field.chunk(), &self.allowance).await?;
        self.allowance.give_back(part.as_ref().map_or(0, Bytes::len));
        Ok(part)
    }
}

/// Reads the rest of a body that was not wanted, if it is not large, without keeping it: a client that is still writing
/// when the connection is closed may not get the response.
pub(super) async fn discard_body(request: Request<Body>, next: Next) -> Response {
    let waits = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = SharedBody(Arc::new(Mutex::new(body)));
    let rest = body.clone();
    let response = next.run(Request::from_parts(parts, Body::new(body))).await;
    let is_small = rest.size_hint().upper().is_none_or(|size| size <= MAX_DISCARDED);
    if !waits && is_small && !rest.is_end_stream() {
        let discarding = rest.discard();
        // What takes longer is cut off.
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, discarding).await;
    }
    response
}

/// A body of which the rest can be read after the handler has ended.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discard(self) {
        let mut read = 0;
        let mut parts = Body::new(self).into_data_stream();
        while let Some(Ok(part)) = parts.next().await {
            read += part.len() as u64;
            if read > MAX_DISCARDED {
                return;
            }
        }
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
