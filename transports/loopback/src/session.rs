//! A store and clients driven by plain calls.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    Event, IntoBytes, Outcome, Removal, Request, RequestId, VersionedValue, WatchEvent, WatchId,
};
use statestore_proto::hlc::Version;
use statestore_proto::store::StoreConfig;
use statestore_proto::time::Instant;

use crate::broker::Faults;
use crate::error::Error;
use crate::message::Message;
use crate::world::{ClientIndex, Clock, Traced, World};

/// A store and its clients, on a network without faults and without delay, in simulated time.
///
/// Each call does all it takes and returns; no thread, no socket and no clock is involved. Time passes when
/// [`advance`](Self::advance) says so.
#[derive(Debug)]
pub struct Session {
    world: World,
    /// Events that a call met while it waited for its own.
    waiting: Vec<VecDeque<Event>>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A store with the default configuration, and no clients.
    #[must_use]
    pub fn new() -> Self {
        Self::with_store(StoreConfig::new(0))
    }

    /// A store with this configuration, and no clients.
    #[must_use]
    pub fn with_store(config: StoreConfig) -> Self {
        Self { world: World::new(0, Faults::default(), config), waiting: Vec::new() }
    }

    /// Connects a client.
    ///
    /// # Errors
    /// [`Error::Config`] when the client id cannot be one, [`Error::Taken`] when it is another's.
    pub fn connect(&mut self, client_id: &str) -> Result<ClientIndex, Error> {
        let index = self.world.add_client(client_id, Clock::default())?;
        self.waiting.push(VecDeque::new());
        self.settle();
        Ok(index)
    }

    /// Stores a value, whatever was stored, and returns its version.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotApplied`].
    pub fn set(
        &mut self,
        client: ClientIndex,
        key: impl IntoBytes,
        value: impl IntoBytes,
    ) -> Result<Version, Error> {
        self.write(client, Request::set(key, value))
    }

    /// Sends a SET with whatever options, and returns the version of the value.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::NotApplied`] when its condition did not hold.
    pub fn write(&mut self, client: ClientIndex, request: Request) -> Result<Version, Error> {
        self.request(client, request)?.into_version()?.ok_or(Error::NotApplied)
    }

    /// Reads a value; `None` when there is none.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotApplied`].
    pub fn get(
        &mut self,
        client: ClientIndex,
        key: impl IntoBytes,
    ) -> Result<Option<VersionedValue>, Error> {
        Ok(self.request(client, Request::get(key))?.into_value()?)
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotApplied`].
    pub fn del(&mut self, client: ClientIndex, key: impl IntoBytes) -> Result<bool, Error> {
        self.remove(client, Request::del(key))
    }

    /// Removes a key if its value is `value`; whether it was there.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::NotApplied`] when the value is another.
    pub fn vdel(
        &mut self,
        client: ClientIndex,
        key: impl IntoBytes,
        value: impl IntoBytes,
    ) -> Result<bool, Error> {
        self.remove(client, Request::vdel(key, value))
    }

    /// All keys that match a [pattern](statestore_proto::glob), page by page.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotApplied`].
    ///
    /// ```
    /// let mut session = statestore_loopback::Session::new();
    /// let client = session.connect("thermostat-7")?;
    /// session.set(client, "rooms/1", "21")?;
    /// assert_eq!(session.scan(client, "rooms/*")?, ["rooms/1"]);
    /// # Ok::<(), statestore_loopback::Error>(())
    /// ```
    pub fn scan(
        &mut self,
        client: ClientIndex,
        pattern: impl IntoBytes,
    ) -> Result<Vec<Bytes>, Error> {
        let (pattern, mut token, mut keys) = (pattern.into_bytes(), None, Vec::new());
        loop {
            let page = self.request(client, Request::scan(&pattern, token))?.into_page()?;
            keys.extend(page.shared_keys());
            token = page.shared_token();
            if token.is_none() {
                return Ok(keys);
            }
        }
    }

    /// Sends any request and waits for its outcome.
    ///
    /// # Errors
    /// [`Error::Submit`] when it was not accepted, [`Error::Unknown`] when there is no such client.
    pub fn request(&mut self, client: ClientIndex, request: Request) -> Result<Outcome, Error> {
        let (machine, now) = self.world.client(client).ok_or(Error::Unknown)?;
        let id = machine.submit(now, request)?;
        loop {
            self.settle();
            if let Some(outcome) = self.completion(client, id) {
                return Ok(outcome);
            }
            // Nothing is on its way any more: only time can end the request.
            if !self.world.step(Instant::from_millis(u64::MAX)) {
                return Ok(Outcome::Unknown);
            }
        }
    }

    /// Watches a key.
    ///
    /// # Errors
    /// [`Error::Submit`] when that was not accepted, [`Error::Unknown`] when there is no such client.
    pub fn watch(&mut self, client: ClientIndex, key: impl IntoBytes) -> Result<WatchId, Error> {
        let (machine, now) = self.world.client(client).ok_or(Error::Unknown)?;
        let id = machine.watch(now, key)?;
        self.settle();
        Ok(id)
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// [`Error::Unknown`] when there is no such client or watch.
    pub fn unwatch(&mut self, client: ClientIndex, watch: WatchId) -> Result<(), Error> {
        let (machine, now) = self.world.client(client).ok_or(Error::Unknown)?;
        if !machine.unwatch(now, watch) {
            return Err(Error::Unknown);
        }
        self.settle();
        Ok(())
    }

    /// The next thing that a watch of this client has to tell.
    pub fn next_change(&mut self, client: ClientIndex) -> Option<(WatchId, WatchEvent)> {
        self.collect(client);
        let waiting = self.waiting.get_mut(client.0)?;
        let at = waiting.iter().position(|event| matches!(event, Event::Watch { .. }))?;
        match waiting.remove(at)? {
            Event::Watch { id, event } => Some((id, event)),
            _ => None,
        }
    }

    /// Cuts the connection of a client; it connects again by itself after a moment.
    pub fn disconnect(&mut self, client: ClientIndex) {
        self.world.disconnect(client);
    }

    /// Advances the time.
    pub fn advance(&mut self, duration: Duration) {
        self.world.run_for(duration);
    }

    /// The world underneath.
    pub const fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Every message delivered since tracing was switched on by [`World::set_tracing`], which are forgotten here.
    pub fn take_trace(&mut self) -> Vec<Message> {
        let message = |traced| match traced {
            Traced::Message(message) => Some(message),
            _ => None,
        };
        self.world.take_trace().into_iter().filter_map(message).collect()
    }

    fn remove(&mut self, client: ClientIndex, request: Request) -> Result<bool, Error> {
        match self.request(client, request)?.into_removal()? {
            Removal::Removed => Ok(true),
            Removal::Absent => Ok(false),
            Removal::Different => Err(Error::NotApplied),
        }
    }

    /// Does all that takes no time.
    fn settle(&mut self) {
        let now = self.world.now();
        while self.world.step(now) {}
    }

    fn collect(&mut self, client: ClientIndex) {
        while let Some(event) = self.world.poll_event(client) {
            if let Some(waiting) = self.waiting.get_mut(client.0) {
                waiting.push_back(event);
            }
        }
    }

    fn completion(&mut self, client: ClientIndex, id: RequestId) -> Option<Outcome> {
        self.collect(client);
        let waiting = self.waiting.get_mut(client.0)?;
        let is_it =
            |event: &Event| matches!(event, Event::Completed { id: other, .. } if *other == id);
        let at = waiting.iter().position(is_it)?;
        match waiting.remove(at)? {
            Event::Completed { outcome, .. } => Some(outcome),
            _ => None,
        }
    }
}
