//! Claims: which of several stores with the same client id started last. Pure.
//!
//! A broker has one connection for each client id, and not every broker reports why it closed the
//! older one. Two stores that reconnect after each takeover would continue for ever. So each store
//! publishes a claim: a retained message with a number greater than that of the claim it found. A
//! store that finds a greater number than its own has been replaced and ends.
//!
//! The clock matters in two cases. If the broker has lost the claims, the store that started later
//! still takes the greater number. If a claim is further ahead of the clock than any store could
//! have set it, a client without a store or a store with a wrong clock has published it. No store
//! ends for such a claim; it takes a greater number instead.

use std::fmt;
use std::str;

use super::packet::is_topic_name;

/// Maximum time, in milliseconds, that a claim of another store may be ahead of the clock: a year.
/// Wrong clocks are off by less, or by decades.
const LEAD_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Greatest number that a store takes, so that a greater one always exists.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Content of a retained claim. The store with the greater claim serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    number: u64,
    /// Random for each store; it orders equal numbers.
    instance: u64,
}

impl Claim {
    /// `None` for anything else, for example a reply that a requester directed here: no reply
    /// begins with a digit.
    fn parse(payload: &[u8]) -> Option<Self> {
        let (number, instance) = str::from_utf8(payload).ok()?.split_once(':')?;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit())
            && instance.len() == 16
            && instance.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_plain {
            return None;
        }
        Some(Self {
            number: number.parse().ok()?,
            instance: u64::from_str_radix(instance, 16).ok()?,
        })
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.number, self.instance)
    }
}

/// The claim of one store, from its first connection to its last.
#[derive(Debug)]
pub(crate) struct Takeover {
    client_id: String,
    topic: String,
    instance: u64,
    /// Its own claim, once it knows the others.
    own: Option<Claim>,
    /// The retained claim that this connection has received.
    found: Option<Claim>,
}

impl Takeover {
    /// `None` if the broker chooses the client id, or if no topic can contain it.
    pub(crate) fn new(client_id: String, instance: u64) -> Option<Self> {
        let topic = format!("clients/{client_id}/services/statestore/instance");
        let is_fixed = !client_id.is_empty() && is_topic_name(&topic);
        is_fixed.then_some(Self { client_id, topic, instance, own: None, found: None })
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// The payload to publish on a new connection, not retained: its echo follows the retained
    /// claim.
    pub(crate) fn marker(&mut self) -> String {
        self.found = None;
        self.echo()
    }

    /// Handles a message on the topic. Returns whether it is the echo.
    pub(crate) fn handle_message(&mut self, retained: bool, payload: &[u8]) -> bool {
        if retained {
            self.found = Claim::parse(payload).or(self.found);
        }
        !retained && payload == self.echo().as_bytes()
    }

    /// After the echo: the claim to publish, or `None` if another store has replaced this one.
    pub(crate) fn claim(&mut self, unix_ms: u64) -> Option<String> {
        let is_far = self.is_far(unix_ms);
        match self.own {
            Some(own) if !is_far => (self.found <= Some(own)).then(|| own.to_string()),
            own => {
                let next = self.found.filter(|found| found.number < NUMBER_MAX);
                let next = next.map_or(0, |found| found.number + 1);
                let number = own.map_or(unix_ms, |own| own.number).max(next);
                let own = Claim { number, instance: self.instance };
                self.own = Some(own);
                Some(own.to_string())
            }
        }
    }

    /// After the echo: whether the retained claim is too far ahead of the clock to be that of a
    /// store that started later.
    pub(crate) fn is_far(&self, unix_ms: u64) -> bool {
        let latest = self.own.map_or(unix_ms, |own| own.number.max(unix_ms));
        self.found.is_some_and(|found| found.number > latest.saturating_add(LEAD_MAX))
    }

    fn echo(&self) -> String {
        format!("?{:016x}", self.instance)
    }
}

#[cfg(test)]
mod tests;
