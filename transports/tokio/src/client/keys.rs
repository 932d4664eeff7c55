//! Keys that match a pattern, as a stream.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures_core::Stream;
use statestore_proto::client::{IntoBytes, Outcome, Request};
use statestore_proto::message::{KeyPreview, Page};

use crate::client::call::Call;
use crate::client::error::Error;
use crate::client::handle::StateStore;

impl StateStore {
    /// Lists the keys that match a [pattern](statestore_proto::glob), as a stream.
    ///
    /// A star matches any characters including `/`, so `rooms/*` also matches the keys of all
    /// levels below. A byte that is not UTF-8 matches like a character. A store that does not
    /// support SCAN refuses it as an unknown command.
    ///
    /// ```
    /// use statestore_tokio::{Error, StateStore};
    ///
    /// async fn show(store: &StateStore) -> Result<(), Error> {
    ///     let mut keys = store.scan("rooms/*/temperature");
    ///     while let Some(key) = keys.next().await? {
    ///         println!("{}", key.escape_ascii());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn scan(&self, pattern: impl IntoBytes) -> Keys {
        Keys {
            store: self.clone(),
            pattern: pattern.into_bytes(),
            timeout: None,
            token: None,
            earlier: EarlierToken::default(),
            page: Vec::new().into_iter(),
            pending: None,
            is_over: false,
        }
    }
}

/// A stream of the keys that match a pattern. The order is up to the store.
///
/// The store returns keys in pages. The first page is requested when the first key is polled, and
/// each further page when all keys of the previous page were returned. A key that exists during the
/// whole listing is returned exactly once. A key that is set or deleted during the listing may be
/// returned or not. The number of pages is unknown: pages may be empty while the store searches.
///
/// After a transient error, for example a lost connection, the next poll requests the same page
/// again. After a permanent error, for example a refusal, the stream ends. A store that repeats a
/// token, so that the listing would not end, is such an error.
#[must_use = "keys are requested when the stream is polled"]
pub struct Keys {
    store: StateStore,
    pattern: Bytes,
    timeout: Option<Duration>,
    /// Token of the next page.
    token: Option<Bytes>,
    earlier: EarlierToken,
    page: vec::IntoIter<Bytes>,
    pending: Option<PageRequest>,
    is_over: bool,
}

/// One earlier token, to detect a store that repeats its tokens for ever: the first, second, fourth
/// and so on. So a repetition is found before the listing is three times as long, whatever its
/// period (the algorithm of Brent), and one token is kept.
#[derive(Default)]
struct EarlierToken {
    token: Option<Bytes>,
    /// Number of tokens since, and the number after which the next one is kept.
    since: u64,
    keep_after: u64,
}

impl EarlierToken {
    /// Returns whether this token equals the earlier one.
    fn is_repeated_by(&mut self, token: &Bytes) -> bool {
        if self.token.as_ref() == Some(token) {
            return true;
        }
        self.since += 1;
        if self.since > self.keep_after {
            (self.token, self.since) = (Some(token.clone()), 0);
            self.keep_after = self.keep_after.saturating_mul(2).max(1);
        }
        false
    }
}

/// The request for a page, in progress.
type PageRequest = Pin<Box<dyn Future<Output = Result<Page<Bytes>, Error>> + Send>>;

impl Keys {
    /// Sets the time limit of each page.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the next key; `None` when no keys are left. Cancel safe.
    ///
    /// # Errors
    /// [`Error`], of which [`Error::Invalid`] means an empty pattern, and [`Error::Refused`] a
    /// pattern that the store does not accept.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|context| self.poll(context)).await.transpose()
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            if let Some(key) = self.page.next() {
                return Poll::Ready(Some(Ok(key)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let pending = match &mut self.pending {
                Some(pending) => pending,
                None => {
                    let next = self.request_page();
                    self.pending.insert(next)
                }
            };
            let page = ready!(pending.as_mut().poll(context));
            self.pending = None;
            match page {
                Ok(page) => {
                    self.page = page.shared_keys().collect::<Vec<_>>().into_iter();
                    self.token = page.shared_token();
                    self.is_over = self.token.is_none();
                    let token = self.token.as_ref();
                    if token.is_some_and(|token| self.earlier.is_repeated_by(token)) {
                        (self.is_over, self.page) = (true, Vec::new().into_iter());
                        return Poll::Ready(Some(Err(Error::repeated_token())));
                    }
                }
                Err(error) => {
                    self.is_over = !is_transient(&error);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn request_page(&self) -> PageRequest {
        let request = Request::scan(&self.pattern, self.token.clone());
        let call = Call::new(&self.store, request, page);
        let call = match self.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        };
        call.into_future()
    }
}

fn page(outcome: Outcome) -> Result<Page<Bytes>, Error> {
    Ok(outcome.into_page()?)
}

/// Returns whether a retry of the same request can succeed.
pub(crate) const fn is_transient(error: &Error) -> bool {
    match error {
        Error::Undelivered(_)
        | Error::NotSent { .. }
        | Error::TimedOut
        | Error::Unanswered { .. }
        | Error::ConnectionLost => true,
        Error::Invalid(_)
        | Error::Refused { .. }
        | Error::Malformed(_)
        | Error::NoVersion
        | Error::LockLost(_)
        | Error::Closed(_) => false,
    }
}

impl Stream for Keys {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("pattern", &KeyPreview(&self.pattern))
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_tokens_are_detected_within_few_pages() {
        let token = |number: usize| Bytes::from(number.to_string());
        for (start, period) in [(0, 1), (0, 2), (0, 7), (1, 1), (5, 3), (100, 1), (100, 64)] {
            let mut earlier = EarlierToken::default();
            let all = (0..).map(|at| if at < start { at } else { start + (at - start) % period });
            let found = all.take(10_000).position(|number| earlier.is_repeated_by(&token(number)));
            let found = found.unwrap_or_else(|| panic!("{start} {period}"));
            assert!(found <= 3 * (start + period) + 3, "{start} {period}: {found}");
        }
        let mut earlier = EarlierToken::default();
        assert!((0..10_000).all(|number| !earlier.is_repeated_by(&token(number))));
    }
}
