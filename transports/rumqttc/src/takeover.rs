//! Which of the stores that share a client id came last. Pure.
//!
//! A broker keeps one connection for each client id, and not every one says why it closed the older: two stores that
//! connect again whenever they are thrown out would do so for ever. So each leaves a claim, a retained message with a
//! number greater than that of the claim it found, and keeps its number for its lifetime. Who finds a greater one has
//! been replaced.
//!
//! The clock only matters where the broker has forgotten the claims: then the later start still has the greater number.
//! And where a claim is so far beyond it that no later start can have left it: somebody else has, or a store whose clock
//! was wrong, which may be gone. Nobody ends for that one, but takes a number greater than it. If there is such a store, it
//! finds that greater number close to its own, and ends.

use std::fmt;
use std::str;

use rumqttc::v5::mqttbytes::valid_topic;

/// How far beyond the clock, in milliseconds, a claim may be that another store has left: a year. Clocks are wrong by
/// less, or by decades.
const LEAD_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// No number is taken past this one, so that there is always a greater one.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// What is retained. The greater one serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    number: u64,
    /// Drawn at random for each store; it settles what equal numbers leave open.
    instance: u64,
}

impl Claim {
    /// `None` for anything else, such as a reply that a requester has sent here: none begins with a digit.
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

/// One store, from its first connection to its last.
#[derive(Debug)]
pub(crate) struct Takeover {
    client_id: String,
    topic: String,
    instance: u64,
    /// Its own claim, once it knew which there were.
    own: Option<Claim>,
    /// The one that is retained, as far as this connection has heard.
    found: Option<Claim>,
}

impl Takeover {
    /// `None` for a client id that the broker is to choose, or that no topic can name.
    pub(crate) fn new(client_id: String, instance: u64) -> Option<Self> {
        let topic = format!("clients/{client_id}/services/statestore/instance");
        let is_fixed = !client_id.is_empty() && valid_topic(&topic);
        is_fixed.then_some(Self { client_id, topic, instance, own: None, found: None })
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// What to publish on a new connection, not retained: its echo comes after all that is retained.
    pub(crate) fn marker(&mut self) -> String {
        self.found = None;
        self.echo()
    }

    /// Takes a message on the topic; whether it is the echo.
    pub(crate) fn hear(&mut self, retained: bool, payload: &[u8]) -> bool {
        if retained {
            self.found = Claim::parse(payload).or(self.found);
        }
        !retained && payload == self.echo().as_bytes()
    }

    /// After the echo: the claim to leave, or `None` when another store has replaced this one.
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

    /// After the echo: whether what is retained is too far beyond the clock to be of another store that came later.
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
