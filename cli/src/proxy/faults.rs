//! What goes wrong, and with which packets: by a file and a seed, and nothing else.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use statestore_mqtt::Kind;
use statestore_mqtt::topic::Filter;

/// Faults in a file, at most: each packet is held against all of them.
const FAULTS_MAX: usize = 64;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    ToBroker,
    ToClient,
}

impl Direction {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::ToBroker => "to-broker",
            Self::ToClient => "to-client",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Drop,
    Repeat,
    Hold,
    Cut,
    CutInside,
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Which {
    Publish,
    Puback,
    Any,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Fault {
    kind: What,
    packet: Option<Which>,
    direction: Option<Direction>,
    topic: Option<String>,
    #[serde(default = "always")]
    probability: f64,
    #[serde(rename = "for", default, deserialize_with = "time")]
    lasts: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    cut_after: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    from: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    until: Option<Duration>,
}

const fn always() -> f64 {
    1.0
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map(Some).map_err(D::Error::custom)
}

/// Everything that goes wrong.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    #[serde(default, rename = "fault")]
    faults: Vec<Fault>,
}

/// What is known of a packet before it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) kind: Kind,
    pub(super) direction: Direction,
    /// Of a PUBLISH.
    pub(super) topic: Option<&'a str>,
    /// Since the start of the proxy.
    pub(super) at: Duration,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Pass,
    /// It does not, and so much later neither does the connection.
    Drop(Duration),
    /// It goes on twice.
    Repeat,
    /// It goes on after this, and so does all behind it.
    Hold(Duration),
    /// The connection ends in front of it.
    Cut,
    /// The connection ends in the middle of it.
    CutInside,
}

impl Fate {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop(_) => "drop",
            Self::Repeat => "repeat",
            Self::Hold(_) => "hold",
            Self::Cut => "cut",
            Self::CutInside => "cut-inside",
        }
    }
}

impl Plan {
    /// # Errors
    /// What is wrong with the file, with its line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
            format!("line {line}: {}", error.message())
        })?;
        if plan.faults.len() > FAULTS_MAX {
            return Err(format!("{} faults, and {FAULTS_MAX} are the most", plan.faults.len()));
        }
        for (number, fault) in (1..).zip(&plan.faults) {
            let wrong = |why: &str| Err(format!("fault {number}: {why}"));
            if !(0.0..=1.0).contains(&fault.probability) {
                return wrong("probability is from 0 to 1");
            }
            if (fault.kind == What::Hold) != fault.lasts.is_some() {
                return wrong("hold says how long with `for`, and nothing else does");
            }
            if fault.cut_after.is_some() && fault.kind != What::Drop {
                return wrong("`cut-after` is for drop");
            }
            if fault.topic.as_ref().is_some_and(|topic| Filter::parse(topic).is_none()) {
                return wrong("`topic` is no topic filter");
            }
            if fault.topic.is_some() && !matches!(fault.which(), Which::Publish) {
                return wrong("`topic` is for packet = \"publish\"");
            }
            if fault.kind == What::Refuse
                && (fault.packet.is_some() || fault.direction.is_some() || fault.topic.is_some())
            {
                return wrong("refuse is of connections: it has no packet, direction or topic");
            }
        }
        Ok(plan)
    }
}

impl Fault {
    fn which(&self) -> Which {
        self.packet.unwrap_or(match (self.kind, &self.topic) {
            (What::Drop | What::Repeat, _) | (_, Some(_)) => Which::Publish,
            _ => Which::Any,
        })
    }

    fn is_now(&self, at: Duration) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    fn is_about(&self, seen: &Seen<'_>) -> bool {
        let is_kind = match self.which() {
            Which::Publish => seen.kind == Kind::Publish,
            Which::Puback => seen.kind == Kind::PubAck,
            Which::Any => true,
        };
        let is_topic = self.topic.as_deref().is_none_or(|filter| {
            let filter = Filter::parse(filter);
            seen.topic.is_some_and(|topic| filter.is_some_and(|filter| filter.matches(topic)))
        });
        is_kind
            && is_topic
            && self.is_now(seen.at)
            && self.direction.is_none_or(|direction| direction == seen.direction)
    }
}

/// Decides for the packets that go one way over one connection.
#[derive(Debug)]
pub(super) struct Judge {
    plan: Plan,
    dice: fastrand::Rng,
}

impl Judge {
    pub(super) fn new(plan: &Plan, seed: u64, connection: u64, direction: Direction) -> Self {
        let way = u64::from(direction == Direction::ToClient);
        // Numbers that are near to each other begin alike otherwise.
        let mixed = (connection * 2 + way + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { plan: plan.clone(), dice: fastrand::Rng::with_seed(seed ^ mixed) }
    }

    /// What becomes of this packet: what the first fault says that comes about.
    pub(super) fn fate_of(&mut self, seen: &Seen<'_>) -> Fate {
        let mut fate = Fate::Pass;
        for fault in &self.plan.faults {
            // Each fault has its throw for each packet, so that one does not change what another hits.
            let throw = self.dice.f64();
            let comes = throw < fault.probability && fault.is_about(seen);
            if comes && fate == Fate::Pass {
                fate = match fault.kind {
                    What::Drop => Fate::Drop(fault.cut_after.unwrap_or(Duration::from_secs(2))),
                    What::Repeat => Fate::Repeat,
                    What::Hold => Fate::Hold(fault.lasts.unwrap_or_default()),
                    What::Cut => Fate::Cut,
                    What::CutInside => Fate::CutInside,
                    What::Refuse => Fate::Pass,
                };
            }
        }
        fate
    }

    /// Whether a connection is refused.
    pub(super) fn refuses(&mut self, at: Duration) -> bool {
        let mut is_refused = false;
        for fault in self.plan.faults.iter().filter(|fault| fault.kind == What::Refuse) {
            is_refused |= self.dice.f64() < fault.probability && fault.is_now(at);
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: Kind, direction: Direction, topic: Option<&str>, at: u64) -> Seen<'_> {
        Seen { kind, direction, topic, at: Duration::from_secs(at) }
    }

    fn judge(text: &str) -> Judge {
        Judge::new(&Plan::parse(text).unwrap(), 7, 1, Direction::ToBroker)
    }

    #[test]
    fn a_fault_comes_about_where_it_says_and_nowhere_else() {
        let mut judge = judge(
            "[[fault]]\nkind = \"drop\"\ndirection = \"to-broker\"\ntopic = \"a/#\"\nfrom = \"5s\"\nuntil = \"9s\"\ncut-after = \"1s\"\n\
             [[fault]]\nkind = \"repeat\"\npacket = \"puback\"\n\
             [[fault]]\nkind = \"hold\"\nfor = \"20ms\"\ntopic = \"b\"\n",
        );
        let dropped = Fate::Drop(Duration::from_secs(1));
        let held = Fate::Hold(Duration::from_millis(20));
        use Direction::{ToBroker, ToClient};
        for (kind, direction, topic, at, fate) in [
            (Kind::Publish, ToBroker, Some("a/b"), 5, dropped),
            (Kind::Publish, ToBroker, Some("a/b"), 4, Fate::Pass),
            (Kind::Publish, ToBroker, Some("a/b"), 9, Fate::Pass),
            (Kind::Publish, ToClient, Some("a/b"), 5, Fate::Pass),
            (Kind::Publish, ToClient, Some("b"), 5, held),
            (Kind::Publish, ToBroker, Some("c"), 5, Fate::Pass),
            (Kind::PubAck, ToClient, None, 5, Fate::Repeat),
            (Kind::PingReq, ToBroker, None, 5, Fate::Pass),
        ] {
            assert_eq!(
                judge.fate_of(&seen(kind, direction, topic, at)),
                fate,
                "{kind:?} {topic:?} {at}"
            );
        }
        assert!(!judge.refuses(Duration::ZERO));
    }

    #[test]
    fn the_same_seed_does_the_same_and_another_does_not() {
        let plan = Plan::parse("[[fault]]\nkind = \"drop\"\nprobability = 0.3\n[[fault]]\nkind = \"refuse\"\nprobability = 0.5\n").unwrap();
        let fates = |seed, connection, direction| -> Vec<Fate> {
            let mut judge = Judge::new(&plan, seed, connection, direction);
            (0..1_000)
                .map(|_| judge.fate_of(&seen(Kind::Publish, direction, Some("t"), 1)))
                .collect()
        };
        let first = fates(1, 1, Direction::ToBroker);
        assert_eq!(first, fates(1, 1, Direction::ToBroker));
        for other in [
            fates(2, 1, Direction::ToBroker),
            fates(1, 2, Direction::ToBroker),
            fates(1, 1, Direction::ToClient),
        ] {
            assert_ne!(first, other);
        }
        let dropped = first.iter().filter(|fate| **fate != Fate::Pass).count();
        assert!((200..400).contains(&dropped), "{dropped} of 1,000 at 0.3");
        let refused = (0..1_000)
            .filter(|number| {
                Judge::new(&plan, 1, *number, Direction::ToBroker).refuses(Duration::ZERO)
            })
            .count();
        assert!((400..600).contains(&refused), "{refused} of 1,000 at 0.5");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, told) in [
            ("[[fault]]\nkind = \"lose\"\n", "line 2: "),
            ("[[fault]]\nkind = \"drop\"\nprobability = 1.5\n", "fault 1: probability"),
            ("[[fault]]\nkind = \"drop\"\nprob = 1\n", "line 3: unknown field"),
            ("[[fault]]\nkind = \"hold\"\n", "fault 1: hold says how long"),
            ("[[fault]]\nkind = \"cut\"\nfor = \"1s\"\n", "fault 1: hold says how long"),
            ("[[fault]]\nkind = \"cut\"\ncut-after = \"1s\"\n", "fault 1: `cut-after`"),
            ("[[fault]]\nkind = \"hold\"\nfor = \"soon\"\n", "line 3: "),
            ("[[fault]]\nkind = \"drop\"\ntopic = \"a#\"\n", "no topic filter"),
            ("[[fault]]\nkind = \"drop\"\npacket = \"puback\"\ntopic = \"a\"\n", "`topic` is for"),
            ("[[fault]]\nkind = \"refuse\"\npacket = \"any\"\n", "refuse is of connections"),
            (&"[[fault]]\nkind = \"drop\"\n".repeat(65), "64 are the most"),
            ("faults = 1\n", "line 1: unknown field"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(Plan::parse("").unwrap().faults.is_empty());
    }
}
