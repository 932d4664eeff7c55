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

use crate::call::Call;
use crate::error::Error;
use crate::handle::StateStore;

impl StateStore {
    /// Lists the keys that match a [pattern](statestore_proto::glob), as a stream. A star stands for any characters, `/` among
    /// them, so `rooms/*` has the keys of all levels below. Keys that are not UTF-8 match no pattern, and a pattern that is
    /// not UTF-8 matches nothing. A store that is older than this request refuses it as an unknown command.
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
            page: Vec::new().into_iter(),
            asked: None,
            is_over: false,
        }
    }
}

/// A stream of the keys that match a pattern, in no order that all stores share.
///
/// The store gives them in pages. Nothing is asked for before the first key is wanted, nor the next page before all keys of
/// the last one were taken. A key that is there from the first page to the last comes exactly once; one that is set or
/// deleted meanwhile comes or does not. There is no telling how many pages there are: a store may look for long and find
/// nothing, and answers meanwhile with pages that are empty.
///
/// After an error that may pass, as a lost connection, the page is asked for again when the next key is wanted. After one
/// that will not, as a refusal, the stream is over.
#[must_use = "keys are asked for when they are taken"]
pub struct Keys {
    store: StateStore,
    pattern: Bytes,
    timeout: Option<Duration>,
    /// Of the page that comes next.
    token: Option<Bytes>,
    page: vec::IntoIter<Bytes>,
    asked: Option<Asked>,
    is_over: bool,
}

/// A page that was asked for.
type Asked = Pin<Box<dyn Future<Output = Result<Page<Bytes>, Error>> + Send>>;

impl Keys {
    /// How long each page may take.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The next key; `None` when there are no more. Cancel safe.
    ///
    /// # Errors
    /// [`Error`]. [`Error::Invalid`] for an empty pattern; [`Error::Refused`] for what the store takes for no pattern.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|context| self.poll(context)).await.transpose()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            if let Some(key) = self.page.next() {
                return Poll::Ready(Some(Ok(key)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let asked = match &mut self.asked {
                Some(asked) => asked,
                None => {
                    let next = self.ask();
                    self.asked.insert(next)
                }
            };
            let page = ready!(asked.as_mut().poll(context));
            self.asked = None;
            match page {
                Ok(page) => {
                    self.page = page.shared_keys().collect::<Vec<_>>().into_iter();
                    self.token = page.shared_token();
                    self.is_over = self.token.is_none();
                }
                Err(error) => {
                    self.is_over = !may_pass(&error);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn ask(&self) -> Asked {
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

/// Whether the same request may be answered another time.
const fn may_pass(error: &Error) -> bool {
    match error {
        Error::Undelivered(_)
        | Error::NotSent
        | Error::TimedOut
        | Error::Unanswered { .. }
        | Error::Unknown => true,
        Error::Invalid(_)
        | Error::Refused(_)
        | Error::Malformed(_)
        | Error::NoVersion
        | Error::LockLost
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
