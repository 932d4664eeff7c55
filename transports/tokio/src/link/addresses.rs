//! Selects the address of the next attempt. Pure, except for logging.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use crate::link::address::Address;
use crate::link::error::LinkError;
use crate::link::options::Options;

/// A connection that ends before this time has ended early.
const EARLY: Duration = Duration::from_secs(10);

/// Number of connections in a row that end early after which another address is tried first.
const EARLY_MAX: u8 = 2;

/// The addresses of a link and the order of attempts, for a [`Link`](crate::Link) that connects
/// with [`Options`].
///
/// One call of [`Link::connect`](crate::Link::connect) is one round: it tries each address once,
/// with its own timeout, and fails when all have failed. So the drive loop pauses between rounds. A
/// round begins with the address that was connected last. It continues in the order of the options,
/// and wraps around from the last to the first.
///
/// ```
/// use statestore_tokio::{Address, Addresses, LinkError, Options};
/// # fn open(at: &Address) -> Result<(), LinkError> {
/// #     if at.port == 1883 { Ok(()) } else { Err(LinkError::transient("refused")) }
/// # }
///
/// # fn main() -> Result<(), LinkError> {
/// # let now = tokio::time::Instant::now();
/// let options = Options::new("c1", "a.example", 1884).add_address("b.example", 1883);
/// let mut addresses = Addresses::new(&options);
/// let mut at = addresses.begin_round(now);
/// while let Err(error) = open(&at) {
///     at = addresses.report_failure(error)?;
/// }
/// addresses.report_connection(now);
/// assert_eq!(addresses.in_use().address(), Some(Address::new("b.example", 1883)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Addresses {
    /// At least one address.
    all: Vec<Address>,
    /// Index of the first address of a round.
    first: usize,
    /// Index of the address that is being tried or is connected.
    current: usize,
    /// Addresses that failed in this round, with their errors.
    failed: Vec<(usize, LinkError)>,
    /// Start of the current connection, if any.
    since: Option<Instant>,
    /// Index of the address that was connected last, and the number of its connections in a row
    /// that ended early.
    early: (usize, u8),
    in_use: watch::Sender<Option<Address>>,
}

impl Addresses {
    /// The addresses of these options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            all: options.addresses().collect(),
            first: 0,
            current: 0,
            failed: Vec::new(),
            since: None,
            early: (0, 0),
            in_use: watch::Sender::new(None),
        }
    }

    /// Begins a round with the returned address. An unfinished round is discarded. A connection
    /// whose loss was not reported counts as ended now.
    pub fn begin_round(&mut self, now: Instant) -> Address {
        self.count_end(now);
        self.failed.clear();
        self.select(self.first)
    }

    /// Reports that the current address has failed. Returns the address to try next.
    ///
    /// # Errors
    /// The error for [`Link::connect`](crate::Link::connect) to return at the end of the round: all
    /// addresses have failed, or this failure would be the same at each. With several addresses,
    /// the error lists each with its reason, and is final if all are.
    pub fn report_failure(&mut self, error: LinkError) -> Result<Address, LinkError> {
        if let [address] = &*self.all {
            return Err(error.with_address(address));
        }
        if !error.is_transient() && !error.is_address_specific() {
            return Err(error.with_address(self.at(self.current)));
        }
        info!(broker = %self.at(self.current), %error, "address failed, trying the next one");
        self.first = self.named_by(&error).unwrap_or(self.first);
        self.failed.push((self.current, error));
        let is_left = |index: &usize| !self.failed.iter().any(|(tried, _)| tried == index);
        let count = self.all.len();
        match (0..count).map(|step| (self.first + step) % count).find(is_left) {
            Some(next) => Ok(self.select(next)),
            None => Err(self.all_failed()),
        }
    }

    /// Reports a connection to the current address.
    pub fn report_connection(&mut self, now: Instant) {
        self.failed.clear();
        self.first = self.current;
        self.since = Some(now);
        if self.early.0 != self.current {
            self.early = (self.current, 0);
        }
        let address = self.at(self.current).clone();
        if self.all.len() > 1 {
            info!(broker = %address, "connected to one of several addresses");
        }
        self.in_use.send_replace(Some(address));
    }

    /// Reports a lost connection. Returns the error for
    /// [`Link::next_event`](crate::Link::next_event).
    ///
    /// The same address is tried first, unless the broker has sent this client elsewhere, or two
    /// connections in a row lasted less than ten seconds.
    pub fn report_loss(&mut self, error: LinkError, now: Instant) -> LinkError {
        self.count_end(now);
        let error = error.with_address(self.at(self.current));
        if self.all.len() == 1 || !error.is_address_specific() {
            return error;
        }
        self.first = self.named_by(&error).unwrap_or((self.current + 1) % self.all.len());
        error.moved_on()
    }

    /// Reports the address in use, also after this value was moved into a link.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        InUse(self.in_use.subscribe())
    }

    /// Index of the address in the Server Reference of an error. Only a configured address counts,
    /// since credentials must not be sent elsewhere.
    fn named_by(&self, error: &LinkError) -> Option<usize> {
        let named = error.server_reference()?;
        let is_other = |index: &usize| *index != self.current;
        (0..self.all.len()).filter(is_other).find(|index| self.at(*index).is_in(named))
    }

    /// Counts the end of a connection, if there was one.
    fn count_end(&mut self, now: Instant) {
        let Some(since) = self.since.take() else { return };
        self.in_use.send_replace(None);
        let (_, early) = &mut self.early;
        *early = if now.saturating_duration_since(since) < EARLY { *early + 1 } else { 0 };
        if *early >= EARLY_MAX {
            *early = 0;
            self.first = (self.current + 1) % self.all.len();
        }
    }

    fn select(&mut self, index: usize) -> Address {
        self.current = index;
        self.at(index).clone()
    }

    fn at(&self, index: usize) -> &Address {
        &self.all[index]
    }

    fn all_failed(&self) -> LinkError {
        let each = self.failed.iter().map(|(index, error)| format!("{}: {error}", self.at(*index)));
        let each = each.collect::<Vec<_>>().join("; ");
        let text = format!("all {} addresses failed: {each}", self.all.len());
        // With a transient error among them, the next round can succeed.
        let errors = || self.failed.iter().map(|(_, error)| error);
        let transient = errors().find(|error| error.is_transient());
        let Some(decisive) = transient.or_else(|| errors().next_back()) else {
            return LinkError::transient(text);
        };
        decisive.clone().all_failed(text)
    }
}

/// Reports the address that a link uses.
#[derive(Clone, Debug)]
pub struct InUse(watch::Receiver<Option<Address>>);

impl InUse {
    /// The address of the current connection; `None` without a connection.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests;
