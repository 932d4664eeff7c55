//! Changes of all keys that match a pattern, as a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use statestore_proto::client::{IntoBytes, WatchEnd, WatchEvent};
use statestore_proto::glob::Pattern;
use statestore_proto::hlc::Version;
use statestore_proto::message::KeyPreview;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::error::Error;
use crate::client::handle::StateStore;
use crate::client::keys::{Keys, is_transient};
use crate::client::watch::Watch;
use crate::diagnostics::text::Hidden;

/// Default of [`PatternWatch::interval`].
const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest interval. Each listing can read all keys of the store.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Pause before a failed listing is repeated, unless the interval is shorter.
const RETRY: Duration = Duration::from_secs(1);
/// Default and maximum of [`PatternWatch::keys_max`]: what one handle can watch, with some left for
/// locks and other watches.
const KEYS_MAX: usize = 1_000;

impl StateStore {
    /// Watches all keys that match a [pattern](statestore_proto::glob): their current values, and
    /// every later change.
    ///
    /// The protocol lacks such a request. The stream lists the keys (SCAN) at the start and at an
    /// [interval](PatternWatch::interval), and watches each key (KEYNOTIFY). See [`PatternWatch`]
    /// for the delays, the costs and the limit that follow.
    ///
    /// ```
    /// use statestore_tokio::{PatternEvent, StateStore};
    ///
    /// async fn follow(store: &StateStore) {
    ///     let mut rooms = store.watch_pattern("rooms/*");
    ///     while let Some(event) = rooms.next().await {
    ///         match event {
    ///             PatternEvent::Changed { key, value: Some(value), .. } => {
    ///                 println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    ///             }
    ///             PatternEvent::Changed { key, .. } => println!("{} is gone", key.escape_ascii()),
    ///             PatternEvent::Live => println!("what was reported is current"),
    ///             PatternEvent::Gap => println!("changes may be missed until the next `Live`"),
    ///             PatternEvent::Ended(end) => println!("over: {end}"),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// ```
    pub fn watch_pattern(&self, pattern: impl IntoBytes) -> PatternWatch {
        PatternWatch {
            store: self.clone(),
            pattern: pattern.into_bytes(),
            interval: INTERVAL,
            keys_max: KEYS_MAX,
            skips_excess: false,
            processed: BTreeMap::new(),
            deleted: BTreeSet::new(),
            keys: BTreeMap::new(),
            polled: None,
            listing: None,
            sleep: None,
            starting: None,
            is_listed: false,
            is_live: false,
            is_over: false,
        }
    }
}

/// An event of a [`PatternWatch`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternEvent {
    /// A key has this value. The first event of each key reports its current value.
    Changed {
        /// The key.
        key: Bytes,
        /// The value; `None` if the key was deleted or has expired.
        value: Option<Bytes>,
        /// The version of the value or of the deletion, if known.
        version: Option<Version>,
    },
    /// Every key of the last listing was reported with its current value.
    Live,
    /// Changes may be missed until the next [`Live`](Self::Live).
    Gap,
    /// This number of keys of the last listing is not watched, after
    /// [`skip_excess_keys`](PatternWatch::skip_excess_keys). Reported for each listing.
    Skipped(usize),
    /// The stream ends.
    Ended(PatternEnd),
}

/// Omits the value.
impl fmt::Debug for PatternEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { key, value, version } => f
                .debug_struct("Changed")
                .field("key", &KeyPreview(key))
                .field("value", &value.as_deref().map(Hidden))
                .field("version", version)
                .finish(),
            Self::Live => f.write_str("Live"),
            Self::Gap => f.write_str("Gap"),
            Self::Skipped(count) => f.debug_tuple("Skipped").field(count).finish(),
            Self::Ended(end) => f.debug_tuple("Ended").field(end).finish(),
        }
    }
}

/// Reason for the end of a [`PatternWatch`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternEnd {
    /// More keys match than may be watched.
    #[error("more than {0} keys match the pattern: use a narrower pattern")]
    TooManyKeys(usize),
    /// The store refused the listing or a watch, or the handle has ended.
    #[error(transparent)]
    Failed(Error),
}

/// A stream of the events of all keys that match a pattern.
///
/// It begins with the value of each key, and [`PatternEvent::Live`]. [`PatternEvent::Gap`] has the
/// meaning that it has for [one key](Watch): it is reported if any key may have missed changes.
/// Then the keys are listed again, those that have changed are reported, and `Live` ends the gap.
///
/// * **Delay.** A change of a watched key is reported when its notification arrives. A new key is
///   reported after the next listing, so within the [interval](Self::interval) and the time of the
///   listing. A key that is set and deleted between two listings is not reported.
/// * **Cost.** Each key costs a registration at the store, a KEYNOTIFY and a GET at the start, and
///   a KEYNOTIFY at each renewal, by default every 30 seconds. Each listing costs one request per
///   page of 8 KiB of keys. Each call of `next` polls all keys.
/// * **Limit.** If more than [`keys_max`](Self::keys_max) keys match, the stream ends with
///   [`PatternEnd::TooManyKeys`], or [skips](Self::skip_excess_keys) the others.
///
/// A store that does not support SCAN refuses the listing, and the stream ends. A deleted key is
/// watched until the next listing. Dropping the stream ends all watches.
#[must_use = "keys are listed when the stream is polled"]
pub struct PatternWatch {
    store: StateStore,
    pattern: Bytes,
    interval: Duration,
    keys_max: usize,
    skips_excess: bool,
    /// Versions that the application has processed, of keys that no listing has contained yet.
    processed: BTreeMap<Bytes, Version>,
    /// Keys of `processed` that the first complete listing lacked, and that were not reported yet.
    deleted: BTreeSet<Bytes>,
    keys: BTreeMap<Bytes, WatchedKey>,
    /// The key that was polled last, so that a busy key does not delay the others.
    polled: Option<Bytes>,
    listing: Option<Listing>,
    /// Until the next listing.
    sleep: Option<Pin<Box<Sleep>>>,
    starting: Option<Starting>,
    /// Set if a listing that began after the last gap is complete.
    is_listed: bool,
    /// Set if the last status that was reported is `Live`.
    is_live: bool,
    is_over: bool,
}

struct WatchedKey {
    watch: Watch,
    is_live: bool,
    has_value: bool,
}

/// An event of one key.
enum KeyEvent {
    Changed(PatternEvent),
    Gap,
    Ended(Error),
}

/// A listing in progress.
struct Listing {
    keys: Keys,
    /// The keys that are watched.
    found: BTreeSet<Bytes>,
    /// Number of keys that are not watched.
    skipped: usize,
    /// Set if a gap began during this listing, so it may lack keys.
    is_outdated: bool,
}

/// A watch that is being started.
struct Starting {
    key: Bytes,
    watch: Pin<Box<dyn Future<Output = Result<Watch, Error>> + Send>>,
}

impl PatternWatch {
    /// Sets the time between the end of a listing and the next one: at least 100 ms, ten seconds by
    /// default.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(INTERVAL_MIN);
        self
    }

    /// Sets the largest number of keys: 1 to 1,000, which is the default. All watches of one handle
    /// together are limited by
    /// [`ClientLimits::watches_max`](statestore_proto::limits::ClientLimits).
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys.clamp(1, KEYS_MAX);
        self
    }

    /// Continues if more than [`keys_max`](Self::keys_max) keys match. The keys that are watched
    /// already stay so, and a further key is watched at the first listing after one of them was
    /// deleted. [`PatternEvent::Skipped`] reports the number of the others.
    ///
    /// Then other clients cannot end the stream by creating keys.
    ///
    /// ```
    /// use statestore_tokio::{PatternEvent, StateStore};
    ///
    /// async fn print_skipped(store: &StateStore) {
    ///     let mut rooms = store.watch_pattern("rooms/*").keys_max(100).skip_excess_keys();
    ///     while let Some(event) = rooms.next().await {
    ///         if let PatternEvent::Skipped(count) = event {
    ///             println!("{count} rooms are not watched");
    ///         }
    ///     }
    /// }
    /// ```
    pub fn skip_excess_keys(mut self) -> Self {
        self.skips_excess = true;
        self
    }

    /// Omits the values that the application has processed: `processed` contains the version of the
    /// last value of each key. It has the meaning that it has for
    /// [one key](StateStore::watch_since):
    ///
    /// * A key with this version is not reported before [`PatternEvent::Live`].
    /// * A key with another version, or of which `processed` has none, is reported with its value.
    /// * A key that matches the pattern and is absent is reported without a value.
    ///
    /// Together with a stored copy of the versions, the application processes the present state of
    /// each key at least once, even if it crashes. The stream holds the versions until its first
    /// complete listing.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use statestore_tokio::{PatternEvent, StateStore, Version};
    ///
    /// # fn load() -> BTreeMap<Vec<u8>, Version> { BTreeMap::new() }
    /// # fn process(_: &[u8], _: Option<&[u8]>) {}
    /// # fn save(_: &BTreeMap<Vec<u8>, Version>) {}
    /// async fn follow(store: &StateStore) {
    ///     let mut versions = load();
    ///     let mut rooms = store.watch_pattern("rooms/*").since(versions.clone());
    ///     while let Some(event) = rooms.next().await {
    ///         if let PatternEvent::Changed { key, value, version } = event {
    ///             process(&key, value.as_deref());
    ///             match version.filter(|_| value.is_some()) {
    ///                 Some(version) => versions.insert(key.to_vec(), version),
    ///                 None => versions.remove(&*key),
    ///             };
    ///             // After a crash before this line, the change is reported again.
    ///             save(&versions);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn since<K: IntoBytes>(
        mut self,
        processed: impl IntoIterator<Item = (K, Version)>,
    ) -> Self {
        let processed = processed.into_iter().map(|(key, version)| (key.into_bytes(), version));
        self.processed = processed.collect();
        self
    }

    /// Returns the next event; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<PatternEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<PatternEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // Polled before the keys, so that frequent changes do not delay the listing.
        if let Err(event) = self.poll_listing(context) {
            return Poll::Ready(Some(event));
        }
        if let Some(key) = self.deleted.pop_first() {
            return Poll::Ready(Some(PatternEvent::Changed { key, value: None, version: None }));
        }
        while let Some(event) = self.poll_keys(context) {
            match event {
                KeyEvent::Changed(event) => return Poll::Ready(Some(event)),
                KeyEvent::Gap => {
                    if let Some(gap) = self.begin_gap() {
                        return Poll::Ready(Some(gap));
                    }
                }
                KeyEvent::Ended(error) => return Poll::Ready(Some(self.end(error))),
            }
        }
        // A gap has set another time of the next listing.
        if let Some(sleep) = &mut self.sleep
            && sleep.as_mut().poll(context).is_ready()
        {
            context.waker().wake_by_ref();
        }
        let is_complete = self.is_listed && self.listing.is_none() && self.starting.is_none();
        if is_complete && !self.is_live && self.keys.values().all(|key| key.is_live) {
            self.is_live = true;
            return Poll::Ready(Some(PatternEvent::Live));
        }
        Poll::Pending
    }

    /// Polls the watches, beginning after the key that was polled last.
    fn poll_keys(&mut self, context: &mut Context<'_>) -> Option<KeyEvent> {
        let first = match self.polled.take() {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let last = match &first {
            Bound::Excluded(key) => Bound::Included(key.clone()),
            // An empty range, since all keys are in the first one.
            _ => Bound::Excluded(Bytes::new()),
        };
        for range in [(first, Bound::Unbounded), (Bound::Unbounded, last)] {
            for (key, watched) in self.keys.range_mut::<Bytes, _>(range) {
                while let Poll::Ready(event) = watched.watch.poll(context) {
                    match event {
                        Some(WatchEvent::Changed { value, version }) => {
                            watched.has_value = value.is_some();
                            let key = key.clone();
                            self.polled = Some(key.clone());
                            let event = PatternEvent::Changed { key, value, version };
                            return Some(KeyEvent::Changed(event));
                        }
                        Some(WatchEvent::Live) => watched.is_live = true,
                        Some(WatchEvent::Gap) => {
                            watched.is_live = false;
                            return Some(KeyEvent::Gap);
                        }
                        Some(WatchEvent::Ended(WatchEnd::Refused(error))) => {
                            return Some(KeyEvent::Ended(Error::Refused { error, reason: None }));
                        }
                        None | Some(_) => return Some(KeyEvent::Ended(self.store.closed())),
                    }
                }
            }
        }
        None
    }

    /// Lists the keys, and starts watches. Returns an event of the stream as the error.
    fn poll_listing(&mut self, context: &mut Context<'_>) -> Result<(), PatternEvent> {
        loop {
            if let Some(starting) = &mut self.starting {
                let Poll::Ready(started) = starting.watch.as_mut().poll(context) else {
                    return Ok(());
                };
                let key = starting.key.clone();
                self.starting = None;
                let watch = started.map_err(|error| self.end(error))?;
                self.keys.insert(key, WatchedKey { watch, is_live: false, has_value: false });
            }
            let Some(listing) = &mut self.listing else {
                let is_due = match &mut self.sleep {
                    Some(sleep) => sleep.as_mut().poll(context).is_ready(),
                    None => true,
                };
                if !is_due {
                    return Ok(());
                }
                self.sleep = None;
                self.listing = Some(Listing {
                    keys: self.store.scan(self.pattern.clone()),
                    found: BTreeSet::new(),
                    skipped: 0,
                    is_outdated: false,
                });
                continue;
            };
            let polled = listing.keys.poll(context);
            match polled {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(key))) => {
                    let is_watched = self.keys.contains_key(&key);
                    if self.skips_excess && !is_watched && self.keys.len() >= self.keys_max {
                        listing.skipped += 1;
                        // It is not deleted. If it is watched later, its value is reported.
                        self.processed.remove(&key);
                        continue;
                    }
                    listing.found.insert(key.clone());
                    if listing.found.len() > self.keys_max {
                        self.is_over = true;
                        self.keys.clear();
                        let end = PatternEnd::TooManyKeys(self.keys_max);
                        return Err(PatternEvent::Ended(end));
                    }
                    if !is_watched {
                        let (store, watched) = (self.store.clone(), key.clone());
                        let since = self.processed.remove(&key);
                        let watch =
                            Box::pin(async move { store.watch_since(watched, since).await });
                        self.starting = Some(Starting { key, watch });
                    }
                }
                Poll::Ready(Some(Err(error))) if is_transient(&error) => {
                    self.listing = None;
                    self.sleep_for(RETRY.min(self.interval));
                    if let Some(gap) = self.begin_gap() {
                        return Err(gap);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Err(self.end(error)),
                Poll::Ready(None) => match self.finish_listing() {
                    0 => {}
                    skipped => return Err(PatternEvent::Skipped(skipped)),
                },
            }
        }
    }

    /// Ends the watches of keys that are absent. Returns the number of keys that are not watched.
    fn finish_listing(&mut self) -> usize {
        let Some(listing) = self.listing.take() else { return 0 };
        // A key with a value may have been set after the listing had passed it.
        self.keys.retain(|key, watched| {
            listing.found.contains(key) || watched.has_value || !watched.is_live
        });
        if !listing.is_outdated {
            self.is_listed = true;
            self.find_deleted();
        }
        let pause = if listing.is_outdated { Duration::ZERO } else { self.interval };
        self.sleep_for(pause);
        listing.skipped
    }

    /// Finds the processed keys that the first complete listing lacks.
    fn find_deleted(&mut self) {
        let absent = std::mem::take(&mut self.processed);
        if let Ok(pattern) = Pattern::new(&self.pattern) {
            self.deleted.extend(absent.into_keys().filter(|key| pattern.matches(key)));
        }
    }

    fn sleep_for(&mut self, pause: Duration) {
        let until = Instant::now().checked_add(pause);
        // A pause beyond the range of the clock never ends.
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365));
        self.sleep = Some(Box::pin(sleep_until(until)));
    }

    /// Marks what was listed as incomplete. Returns the event, unless it was reported already.
    fn begin_gap(&mut self) -> Option<PatternEvent> {
        self.is_listed = false;
        match &mut self.listing {
            Some(listing) => listing.is_outdated = true,
            // Not at once: the store is probably out of reach.
            None => {
                let pause = RETRY.min(self.interval);
                // Frequent gaps must not delay the listing again and again.
                let is_sooner =
                    |sleep: &Pin<Box<Sleep>>| sleep.deadline() <= Instant::now() + pause;
                if !self.sleep.as_ref().is_some_and(is_sooner) {
                    self.sleep_for(pause);
                }
            }
        }
        std::mem::take(&mut self.is_live).then_some(PatternEvent::Gap)
    }

    fn end(&mut self, error: Error) -> PatternEvent {
        self.is_over = true;
        self.keys.clear();
        PatternEvent::Ended(PatternEnd::Failed(error))
    }
}

impl Stream for PatternWatch {
    type Item = PatternEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PatternEvent>> {
        self.get_mut().poll(context)
    }
}

impl fmt::Debug for PatternWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatternWatch")
            .field("pattern", &KeyPreview(&self.pattern))
            .field("keys", &self.keys.len())
            .field("is_live", &self.is_live)
            .finish_non_exhaustive()
    }
}
