//! Which of several addresses is tried next. Pure, but for what it logs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use crate::address::Address;
use crate::link::LinkError;
use crate::options::Options;

/// A connection that ends sooner was of little use.
const EARLY: Duration = Duration::from_secs(10);

/// So many of them in a row, and another address is tried first.
const EARLY_MAX: u8 = 2;

/// The addresses of a link, and which is tried next: what a [`Link`](crate::Link) needs that connects by [`Options`].
///
/// One call of [`Link::connect`](crate::Link::connect) is one round: it tries each address once, with a time-out of its
/// own, and fails when all have failed. So the pauses between tries are between rounds. A round begins with the address
/// that was connected last, and goes on in the order of the options, round again from the last to the first.
///
/// ```
/// use statestore_tokio::{Address, Addresses, LinkError, Options};
/// # fn open(at: &Address) -> Result<(), LinkError> {
/// #     if at.port == 1883 { Ok(()) } else { Err(LinkError::transient("nobody listens")) }
/// # }
///
/// # fn main() -> Result<(), LinkError> {
/// # let now = tokio::time::Instant::now();
/// let options = Options::new("c1", "a.example", 1884).or_at("b.example", 1883);
/// let mut addresses = Addresses::new(&options);
/// let mut at = addresses.begin(now);
/// while let Err(error) = open(&at) {
///     at = addresses.failed(error)?;
/// }
/// addresses.connected(now);
/// assert_eq!(addresses.in_use().address(), Some(Address::new("b.example", 1883)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Addresses {
    /// One at least.
    all: Vec<Address>,
    /// Where a round begins.
    first: usize,
    /// What is tried, or connected.
    current: usize,
    /// What failed in this round, and why.
    failed: Vec<(usize, LinkError)>,
    /// The start of the connection that there is.
    since: Option<Instant>,
    /// What was connected last, and how often in a row that ended early.
    early: (usize, u8),
    in_use: watch::Sender<Option<Address>>,
}

impl Addresses {
    /// Those of these options.
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

    /// Begins a round with this address. A round that was not ended is forgotten, and a connection that nobody has called
    /// lost has ended now.
    pub fn begin(&mut self, now: Instant) -> Address {
        self.ended(now);
        self.failed.clear();
        self.turn_to(self.first)
    }

    /// The address that is being tried has failed; the one to try next.
    ///
    /// # Errors
    /// What [`Link::connect`](crate::Link::connect) is to tell, when the round is over: all have failed, or this failure
    /// would be the same everywhere. Where there are several addresses it names each with its reason, and is final if all
    /// are.
    pub fn failed(&mut self, error: LinkError) -> Result<Address, LinkError> {
        if let [_] = *self.all {
            return Err(error);
        }
        if !error.is_transient() && !error.is_elsewhere() {
            return Err(error.at(self.at(self.current)));
        }
        info!(broker = %self.at(self.current), %error, "no connection to this one of several brokers");
        self.first = self.named_by(&error).unwrap_or(self.first);
        self.failed.push((self.current, error));
        let is_left = |index: &usize| !self.failed.iter().any(|(tried, _)| tried == index);
        let count = self.all.len();
        match (0..count).map(|step| (self.first + step) % count).find(is_left) {
            Some(next) => Ok(self.turn_to(next)),
            None => Err(self.all_failed()),
        }
    }

    /// There is a connection to the address that was tried last.
    pub fn connected(&mut self, now: Instant) {
        self.failed.clear();
        self.first = self.current;
        self.since = Some(now);
        if self.early.0 != self.current {
            self.early = (self.current, 0);
        }
        let address = self.at(self.current).clone();
        if self.all.len() > 1 {
            info!(broker = %address, "connected to this one of several brokers");
        }
        self.in_use.send_replace(Some(address));
    }

    /// The connection is lost; what [`Link::next`](crate::Link::next) is to tell. The same address is tried first again,
    /// unless the broker has sent this client elsewhere, or two connections in a row did not last for ten seconds.
    pub fn lost(&mut self, error: LinkError, now: Instant) -> LinkError {
        self.ended(now);
        if let [_] = *self.all {
            return error;
        }
        if !error.is_elsewhere() {
            return error.at(self.at(self.current));
        }
        self.first = self.named_by(&error).unwrap_or((self.current + 1) % self.all.len());
        LinkError::transient(error.at(self.at(self.current)))
    }

    /// Tells which address is in use, also after this was moved into a link.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        InUse(self.in_use.subscribe())
    }

    /// Which one a broker has named in place of itself. It is one of these: credentials go nowhere else.
    fn named_by(&self, error: &LinkError) -> Option<usize> {
        let named = error.server_reference()?;
        let is_other = |index: &usize| *index != self.current;
        (0..self.all.len()).filter(is_other).find(|index| self.at(*index).is_in(named))
    }

    /// Counts a connection that has ended, if there was one.
    fn ended(&mut self, now: Instant) {
        let Some(since) = self.since.take() else { return };
        self.in_use.send_replace(None);
        let (_, early) = &mut self.early;
        *early = if now.saturating_duration_since(since) < EARLY { *early + 1 } else { 0 };
        if *early >= EARLY_MAX {
            *early = 0;
            self.first = (self.current + 1) % self.all.len();
        }
    }

    fn turn_to(&mut self, index: usize) -> Address {
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
        match self.failed.iter().any(|(_, error)| error.is_transient()) {
            true => LinkError::transient(text),
            false => LinkError::fatal(text),
        }
    }
}

/// Tells which of its addresses a link uses.
#[derive(Clone, Debug)]
pub struct InUse(watch::Receiver<Option<Address>>);

impl InUse {
    /// The address that it is connected to; `None` while it is not.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests;
