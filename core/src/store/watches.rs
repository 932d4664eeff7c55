//! Registrations for notifications: by key for the fan-out, by client for its end, by number for late outcomes.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use bytes::Bytes;

use crate::hlc::Hlc;
use crate::message::{Dialect, Incarnation};
use crate::mqtt::{Publish, PublishToken, Purpose};
use crate::topic::NotificationTopic;

/// One client's registration for one key.
#[derive(Debug)]
pub(super) struct Watch {
    /// Grows with every registration and renewal.
    number: u64,
    /// The number of the KEYNOTIFY, which stays the same when that is delivered again.
    request: u64,
    client_id: Arc<str>,
    key: Arc<[u8]>,
    pub(super) dialect: Dialect,
    /// What its notifications say, if its KEYNOTIFY asked.
    incarnation: Option<Incarnation>,
}

impl Watch {
    /// The PUBLISH of a notification. Its token names the registration in the PUBACK.
    pub(super) fn notification(&self, payload: Bytes, version: Hlc) -> Publish {
        let mut topic = String::new();
        if let Ok(name) = NotificationTopic::new(&self.client_id, &self.key) {
            topic.reserve_exact(name.encoded_len());
            // A string takes everything.
            let _ = write!(topic, "{name}");
        }
        Publish {
            topic: topic.into(),
            payload,
            response_topic: None,
            correlation_data: None,
            content_type: None,
            message_expiry: None,
            token: Some(PublishToken(self.number)),
            purpose: Purpose::Notification {
                client_id: Arc::clone(&self.client_id),
                incarnation: self.incarnation,
            },
            timestamp: Some(version),
        }
    }

    /// Bytes of key and client id.
    fn len(&self) -> usize {
        bytes_of(&self.client_id, &self.key)
    }
}

/// What a registration counts for against the limit of bytes.
pub(super) const fn bytes_of(client_id: &str, key: &[u8]) -> usize {
    client_id.len() + key.len()
}

/// All registrations. A renewal replaces the registration at its place.
#[derive(Debug)]
pub(super) struct Watches {
    by_key: BTreeMap<Arc<[u8]>, Vec<Arc<Watch>>>,
    by_client: BTreeMap<Arc<str>, BTreeMap<Arc<[u8]>, u64>>,
    by_number: BTreeMap<u64, Arc<Watch>>,
    last: u64,
    bytes: usize,
}

impl Watches {
    pub(super) const fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            by_number: BTreeMap::new(),
            last: 0,
            bytes: 0,
        }
    }

    /// How many registrations there are.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Bytes of their keys and client ids.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The registrations for `key`, the oldest first.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> &[Arc<Watch>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn contains(&self, client_id: &str, key: &[u8]) -> bool {
        self.by_client.get(client_id).is_some_and(|keys| keys.contains_key(key))
    }

    /// Registers, or renews under a new number; `request` is the number of the KEYNOTIFY.
    pub(super) fn insert(
        &mut self,
        client_id: &str,
        key: &[u8],
        dialect: Dialect,
        incarnation: Option<Incarnation>,
        request: u64,
    ) {
        let known = self.by_client.get_key_value(client_id).map(|(id, _)| Arc::clone(id));
        let client_id: Arc<str> = known.unwrap_or_else(|| client_id.into());
        let known = self.by_key.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let key: Arc<[u8]> = known.unwrap_or_else(|| key.into());
        self.last += 1;
        let number = self.last;
        let watch = Arc::new(Watch {
            number,
            request,
            client_id: Arc::clone(&client_id),
            key: Arc::clone(&key),
            dialect,
            incarnation,
        });
        self.by_number.insert(number, Arc::clone(&watch));
        let watchers = self.by_key.entry(Arc::clone(&key)).or_default();
        match self.by_client.entry(client_id).or_default().insert(key, number) {
            None => {
                self.bytes += watch.len();
                watchers.push(watch);
            }
            Some(renewed) => {
                self.by_number.remove(&renewed);
                watchers
                    .iter_mut()
                    .filter(|old| old.number == renewed)
                    .for_each(|old| *old = Arc::clone(&watch));
            }
        }
    }

    pub(super) fn remove(&mut self, client_id: &str, key: &[u8]) {
        let Some(keys) = self.by_client.get_mut(client_id) else { return };
        let number = keys.remove(key);
        if keys.is_empty() {
            self.by_client.remove(client_id);
        }
        if let Some(number) = number {
            self.forget(number);
        }
    }

    /// Ends a registration if its KEYNOTIFY came before the request with this number.
    pub(super) fn remove_earlier(&mut self, client_id: &str, key: &[u8], request: u64) {
        let number = self.by_client.get(client_id).and_then(|keys| keys.get(key));
        let watch = number.and_then(|number| self.by_number.get(number));
        if watch.is_some_and(|watch| watch.request < request) {
            self.remove(client_id, key);
        }
    }

    /// Ends every registration of a client; how many there were.
    pub(super) fn remove_client(&mut self, client_id: &str) -> usize {
        let keys = self.by_client.remove(client_id).unwrap_or_default();
        keys.values().for_each(|number| self.forget(*number));
        keys.len()
    }

    /// Ends the registrations of the client whose notification reached nobody, as far as they are not younger than the
    /// one that notification belonged to: a renewed one says that the client is back. How many there were.
    pub(super) fn remove_undeliverable(&mut self, token: PublishToken) -> usize {
        let Some(watch) = self.by_number.get(&token.0) else { return 0 };
        let client_id = Arc::clone(&watch.client_id);
        let Some(keys) = self.by_client.get_mut(&client_id) else { return 0 };
        let dead: Vec<u64> = keys.values().copied().filter(|number| *number <= token.0).collect();
        keys.retain(|_, number| *number > token.0);
        if keys.is_empty() {
            self.by_client.remove(&client_id);
        }
        dead.iter().for_each(|number| self.forget(*number));
        dead.len()
    }

    /// Removes a registration from the two tables that know it by key and by number.
    fn forget(&mut self, number: u64) {
        let Some(watch) = self.by_number.remove(&number) else { return };
        self.bytes -= watch.len();
        let Some(watchers) = self.by_key.get_mut(&watch.key) else { return };
        watchers.retain(|other| other.number != number);
        if watchers.is_empty() {
            self.by_key.remove(&watch.key);
        }
    }
}
