//! A second implementation of the clock: the four cases of the receive rule, in 128 bits so that
//! nothing overflows.

use statestore_proto::hlc::{Hlc, Node};

/// Wall milliseconds, counter, node id. Tuples and strings compare exactly as clock values must.
pub type Stamp = (u64, u64, String);

/// Milliseconds by which a value may be ahead.
pub const DRIFT_MAX: u64 = 60_000;

/// Counts by which a timestamp may be past a clock that is itself further ahead.
pub const LEAD_MAX: u128 = 65_536;

/// The greatest counter issued.
const COUNTER_MAX: u128 = 2_147_483_647;

/// Converts a clock value of the core to a tuple.
pub fn stamp<N: Node>(hlc: &Hlc<N>) -> Stamp {
    (hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str().to_owned())
}

/// The text of a tuple, without padding.
#[must_use]
pub fn text((wall, counter, node): &Stamp) -> String {
    format!("{wall}:{counter}:{node}")
}

/// Parses a tuple: three parts, the first two of digits only, the last of 1 to 256 bytes.
#[must_use]
pub fn parse(text: &str) -> Option<Stamp> {
    let parts: Vec<&str> = text.split(':').collect();
    let &[wall, counter, node] = parts.as_slice() else { return None };
    let digits = |part: &str| {
        let plain = !part.is_empty() && part.chars().all(|letter| "0123456789".contains(letter));
        plain.then(|| part.parse().ok()).flatten()
    };
    let node_fits = (1..=256).contains(&node.len());
    node_fits.then_some((digits(wall)?, digits(counter)?, node.to_owned()))
}

/// Distance of a refused value from the wall clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift(pub u128);

/// The naive clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Wall and counter of the last value issued.
    pub own: (u64, u64),
    /// Milliseconds by which a value may be ahead.
    pub drift_max: u64,
    node: String,
}

impl Clock {
    /// A clock that has issued nothing.
    #[must_use]
    pub fn new(node: &str, drift_max: u64) -> Self {
        Self { own: (0, 0), node: node.to_owned(), drift_max }
    }

    /// The local rule.
    ///
    /// # Errors
    /// [`Drift`] when the value would be too far ahead; the clock is unchanged.
    pub fn tick(&mut self, now: u64) -> Result<Stamp, Drift> {
        let (wall, counter) = self.own;
        self.issue(now, if now > wall { (now, None) } else { (wall, Some(counter)) })
    }

    /// The receive rule: the first matching case.
    ///
    /// # Errors
    /// [`Drift`] when the value would be too far ahead; the clock is unchanged.
    pub fn receive(&mut self, now: u64, other: &Stamp) -> Result<Stamp, Drift> {
        let (own, own_counter) = self.own;
        let (o, o_counter) = (other.0, other.1);
        let next = if now > own && now > o {
            (now, None)
        } else if own == o {
            (own, Some(own_counter.max(o_counter)))
        } else if own > o {
            (own, Some(own_counter))
        } else {
            (o, Some(o_counter))
        };
        self.issue(now, next)
    }

    /// Increments the counter or starts at zero; a full counter carries into the wall part.
    fn issue(&mut self, now: u64, (wall, counter): (u64, Option<u64>)) -> Result<Stamp, Drift> {
        let (mut wall, mut counter) =
            (u128::from(wall), counter.map_or(0, |counter| u128::from(counter) + 1));
        if counter > COUNTER_MAX {
            (wall, counter) = (wall + 1, 0);
        }
        // Beyond the greatest instant: saturates.
        let ahead = if wall > u128::from(u64::MAX) {
            u128::from(u64::MAX)
        } else {
            wall.saturating_sub(u128::from(now))
        };
        match (u64::try_from(wall), u64::try_from(counter)) {
            (Ok(wall), Ok(counter)) if ahead <= u128::from(self.drift_max) => {
                self.own = (wall, counter);
                Ok((wall, counter, self.node.clone()))
            }
            _ => Err(Drift(ahead)),
        }
    }
}
